"""Tensors of other layouts: jagged ones work through their values, sparse and quantized ones say what to do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

INDICES, VALUES = torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0])


def _jagged(device):
    rows = [torch.arange(8.0).view(2, 4), torch.arange(12.0).view(3, 4)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, device=device)


JAGGED = {
    "add": lambda x: x + 1,
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "linear": lambda x: F.linear(x, torch.eye(4, device=x.device).flip(0)),
    "softmax": lambda x: torch.softmax(x, -1),
    "sum": lambda x: x.sum(-1),
}


@pytest.mark.parametrize("op", JAGGED.values(), ids=JAGGED)
def test_jagged(op):
    actual, expected = op(_jagged("tpu")), op(_jagged("cpu"))
    assert actual.is_nested and actual.device.type == "tpu"
    torch.testing.assert_close(actual.values().cpu(), expected.values())


def test_jagged_to_padded_and_apart():
    padded = _jagged("tpu").to_padded_tensor(-1.0)
    assert torch.equal(padded.cpu(), _jagged("cpu").to_padded_tensor(-1.0))
    for actual, expected in zip(_jagged("tpu").unbind(), _jagged("cpu").unbind(), strict=True):
        assert torch.equal(actual.cpu(), expected)


def _heads(device, requires_grad):
    rows = [torch.randn(n, 2, 8, generator=torch.Generator().manual_seed(n)).to(device) for n in (3, 5, 2)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged).detach().requires_grad_(requires_grad)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_jagged_attention(monkeypatch, requires_grad):
    monkeypatch.setattr(torch.tpu, "cpu_fallback", "error")

    def called(device):
        x = _heads(device, requires_grad)
        result = F.scaled_dot_product_attention(*(x.transpose(1, 2),) * 3).transpose(1, 2)
        if requires_grad:
            result.values().square().sum().backward()
        return result.values().detach().cpu(), x.grad.values().cpu() if requires_grad else None

    torch.testing.assert_close(called("tpu"), called("cpu"))


@pytest.mark.filterwarnings("ignore")
def test_an_encoder_drops_the_padding(monkeypatch):
    """In evaluation PyTorch makes a nested tensor of a padded batch."""
    monkeypatch.setattr(torch.tpu, "cpu_fallback", "error")
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval()
    x, padding = torch.randn(3, 5, 8), torch.arange(5) >= torch.tensor([[3], [5], [2]])
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        actual = encoder.to("tpu")(x.to("tpu"), src_key_padding_mask=padding.to("tpu"))
    torch.testing.assert_close(actual.cpu(), expected)


def test_nested():
    rows = [torch.randn(n, 4) for n in (3, 5)]
    x = torch.nested.as_nested_tensor([row.to("tpu") for row in rows])
    for actual, row in zip(torch.softmax(x * 2, -1).unbind(), rows, strict=True):
        torch.testing.assert_close(actual.cpu(), torch.softmax(row * 2, -1))
    with pytest.raises(NotImplementedError, match="no kernel for nested tensors on the tpu device"):
        x.sum(-1)


REFUSED = {
    "coo to the device": lambda: torch.sparse_coo_tensor(INDICES, VALUES, (2, 2)).to("tpu"),
    "coo on the device": lambda: torch.sparse_coo_tensor(INDICES, VALUES, (2, 2), device="tpu"),
    "to_sparse": lambda: torch.eye(2, device="tpu").to_sparse(),
    "coo product": lambda: torch.sparse.mm(torch.eye(2).to_sparse(), torch.eye(2, device="tpu")),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2, device="tpu"), 1.0, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_other_storages_say_what_to_do(make):
    with pytest.raises(NotImplementedError, match=r"(sparse|quantized) tensors have no kernels on the tpu device.*CPU"):
        make()


def test_to_sparse_says_what_to_do_without_the_fallback(monkeypatch):
    monkeypatch.setattr(torch.tpu, "cpu_fallback", "error")
    for sparse_dim in ((), (1,)):
        with pytest.raises(NotImplementedError, match=r"sparse tensors have no kernels on the tpu device.*CPU"):
            torch.eye(2, device="tpu").to_sparse(*sparse_dim)


@pytest.mark.filterwarnings("ignore")
def test_csr_products_say_what_to_do():
    x = torch.eye(2, device="tpu").to_sparse_csr()
    with pytest.raises(NotImplementedError, match=r"sparse tensors have no kernels on the tpu device.*CPU"):
        torch.mm(x, torch.eye(2, device="tpu"))


def test_sparse_by_way_of_the_cpu():
    """What the errors advise."""
    sparse = torch.sparse_coo_tensor(INDICES, VALUES, (2, 2))
    assert torch.equal(sparse.to_dense().to("tpu").cpu(), sparse.to_dense())
