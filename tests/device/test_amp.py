from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

X = torch.linspace(-1, 1, 32).reshape(4, 8)


def test_default_dtype_is_bfloat16():
    assert torch.get_autocast_dtype("tpu") is torch.bfloat16
    assert torch.tpu.is_bf16_supported()
    assert torch.bfloat16 in torch.tpu.get_amp_supported_dtype()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_policies(dtype):
    x = X.to("tpu")
    with torch.autocast("tpu", dtype=dtype):
        assert (x @ x.t()).dtype is dtype
        assert F.linear(x, x).dtype is dtype
        assert torch.exp(x.to(dtype)).dtype is torch.float32
        assert F.layer_norm(x.to(dtype), (8,)).dtype is torch.float32
        assert torch.softmax(x.to(dtype), 1).dtype is torch.float32
        assert x.to(dtype).sum().dtype is torch.float32
        assert torch.norm(x.to(dtype)).dtype is torch.float32
        assert torch.addcmul(x, x.to(dtype), x.to(dtype)).dtype is torch.float32
        assert (x.to(dtype) + x.to(dtype)).dtype is dtype
        assert torch.relu(x).dtype is torch.float32
        with torch.autocast("tpu", enabled=False):
            assert (x @ x.t()).dtype is torch.float32
    assert (x @ x.t()).dtype is torch.float32


def test_values_are_those_of_the_lower_precision():
    x = X.to("tpu")
    with torch.autocast("tpu"):
        y = x @ x.t()
    low = X.bfloat16()
    torch.testing.assert_close(y.cpu(), low @ low.t())


def test_other_dtypes_are_refused():
    with pytest.warns(UserWarning, match="target dtype is not supported"), torch.autocast("tpu", dtype=torch.float64):
        assert (X.to("tpu") @ X.t().to("tpu")).dtype is torch.float32


def test_binary_cross_entropy_is_banned():
    x = X.to("tpu").sigmoid()
    with torch.autocast("tpu"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        F.binary_cross_entropy(x, x)


def test_weights_are_cast_once():
    weight = torch.ones(8, 8, device="tpu", requires_grad=True)
    x = X.to("tpu")
    with torch.autocast("tpu"):
        x @ weight
        torch.tpu.reset_counters()
        x @ weight
        cached = torch.tpu.counters()["programs"]
    with torch.autocast("tpu", cache_enabled=False):
        x @ weight
        torch.tpu.reset_counters()
        x @ weight
    assert torch.tpu.counters()["programs"] == cached + 1


def test_aliases():
    with torch.tpu.amp.autocast():
        assert (X.to("tpu") @ X.t().to("tpu")).dtype is torch.bfloat16
    assert torch.tpu.amp.GradScaler()._device == "tpu"


def test_training_loop_with_scaler():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("tpu", init_scale=2.0**8)
    x, y = X.to("tpu"), X.sum(1, keepdim=True).to("tpu")
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("tpu", dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert scaler.get_scale() == 2.0**8


def test_scaler_skips_infinite_gradients():
    weight = torch.nn.Parameter(torch.ones(4, device="tpu"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("tpu", init_scale=4.0)
    scaler.scale((weight * torch.tensor([1.0, float("inf"), 1.0, 1.0], device="tpu")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1, 1, 1]
    assert scaler.get_scale() == 2.0


def test_custom_function():
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="tpu", cast_inputs=torch.bfloat16)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="tpu")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.t(), a.t() @ grad

    a = X.to("tpu").requires_grad_()
    with torch.autocast("tpu"):
        out = Product.apply(a, X.t().to("tpu"))
        assert out.dtype is torch.bfloat16
        out.sum().backward()
    assert a.grad.dtype is torch.float32
