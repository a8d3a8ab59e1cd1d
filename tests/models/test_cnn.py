from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.models.compare import assert_all_near, assert_near, check_training


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm and a shortcut, as in ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        y += self.shortcut(x)
        return F.relu(y)


class ResNet(nn.Module):
    """ResNet-18 with one block a stage and few channels."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.stages = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(16, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)))


def images(size: int = 32) -> tuple[Tensor, Tensor]:
    return torch.randn(4, 3, size, size), torch.randint(5, (4,))


def classify(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def test_resnet_training() -> None:
    check_training(ResNet(), images(), classify)


def test_resnet_channels_last() -> None:
    x, y = images()
    model = ResNet().to(memory_format=torch.channels_last)
    check_training(model, (x.contiguous(memory_format=torch.channels_last), y), classify)
    device = copy.deepcopy(model).to("tpu")
    features = device.stages(device.stem(x.to("tpu").contiguous(memory_format=torch.channels_last)))
    host = model.stages(model.stem(x.contiguous(memory_format=torch.channels_last)))
    assert features.stride() == host.stride()


def test_resnet_eval() -> None:
    """Running statistics are used and left alone; dropout does nothing."""
    model, (x, y) = ResNet(), images()
    model.head[2].p = 0.5
    for _ in range(2):
        model(x)
    reference, device = copy.deepcopy(model).eval().double(), model.eval().to("tpu")
    before = {name: t.cpu() for name, t in device.named_buffers()}
    outputs = {}
    for name, own, point in (("cpu", reference, x.double()), ("tpu", device, x.to("tpu"))):
        point.requires_grad_()
        out = own(point)
        F.cross_entropy(out, y.to(out.device)).backward()
        outputs[name] = {"out": out.detach().cpu(), "input gradient": point.grad.cpu()}
    assert_all_near(outputs["tpu"], outputs["cpu"])
    assert all(torch.equal(before[name], t.cpu()) for name, t in device.named_buffers())


class Plain(nn.Module):
    """The rest of what convolutional models use, each layer once."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(3, 8, 3, dilation=2, padding="same"),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
            nn.Conv2d(8, 8, 3, groups=8, padding=1, padding_mode="circular", bias=False),
            nn.InstanceNorm2d(8, affine=True),
            nn.AvgPool2d(2),
            nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1),
            nn.PReLU(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(6, 6, 2, stride=2),
            nn.PixelShuffle(1),
            nn.AdaptiveMaxPool2d(3),
            nn.Flatten(),
            nn.Linear(54, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def test_other_layers() -> None:
    check_training(Plain(), images(12), classify)


def test_unet() -> None:
    """Skip connections by concatenation and a loss for each pixel."""

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(3, 8, 3, padding=1)
            self.middle = nn.Conv2d(8, 8, 3, padding=1)
            self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
            self.out = nn.Conv2d(16, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            skip = F.relu(self.down(x))
            deep = F.relu(self.middle(F.max_pool2d(skip, 2)))
            return self.out(torch.cat([skip, F.interpolate(deep, scale_factor=2) + self.up(deep)], 1))

    x, _ = images(8)
    check_training(UNet(), (x, torch.randint(2, (4, 8, 8))), classify)


@pytest.mark.parametrize("dims", [1, 3])
def test_other_ranks(dims: int) -> None:
    convolution, norm, pool = (
        (nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d) if dims == 1 else (nn.Conv3d, nn.BatchNorm3d, nn.MaxPool3d)
    )
    model = nn.Sequential(
        convolution(2, 4, 3, padding=1, bias=False), norm(4), nn.ReLU(), pool(2), nn.Flatten(), nn.LazyLinear(5)
    )
    x = 1 + torch.randn(
        4, 2, *[6] * dims
    )  # so that no running mean is near zero, where its error has nothing to be relative to
    model(x)
    check_training(model, (x, torch.randint(5, (4,))), classify)


def test_dropout_layers() -> None:
    """Kept elements are scaled, whole channels go, and the backward pass uses the same mask."""
    x = torch.ones(8, 16, 6, 6, device="tpu", requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert y.detach().cpu().unique().tolist() == pytest.approx([0, 4 / 3])
    assert torch.equal(x.grad, y.detach())
    channels = F.dropout2d(x.detach(), 0.5).cpu().flatten(2)
    assert torch.equal(channels.amin(2), channels.amax(2))
    assert 0.3 < (channels[:, :, 0] == 0).float().mean() < 0.7


def test_batch_norm_momentum_and_double_backward() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4, momentum=None), nn.Tanh())
    x, _ = images(6)

    def run(device: str, dtype: torch.dtype) -> dict[str, Tensor]:
        own, point = copy.deepcopy(model).to(device, dtype), x.to(device, dtype).requires_grad_()
        own(point.detach())
        (slope,) = torch.autograd.grad(own(point).square().sum(), point, create_graph=True)
        gradients = torch.autograd.grad(slope.square().sum(), list(own.parameters()))
        return {**{str(i): g.cpu() for i, g in enumerate(gradients)}, **{n: b.cpu() for n, b in own.named_buffers()}}

    assert_all_near(run("tpu", torch.float32), run("cpu", torch.float64))


def test_bfloat16_and_half() -> None:
    """As far from float64 as the CPU in the same dtype is, within a factor of two."""
    model, (x, _) = ResNet().eval(), images()
    exact = copy.deepcopy(model).double()(x.double())
    for dtype in (torch.bfloat16, torch.float16):
        host, device = (copy.deepcopy(model).to(d, dtype)(x.to(d, dtype)).cpu().double() for d in ("cpu", "tpu"))
        assert (device - exact).abs().max() <= 2 * (host - exact).abs().max()


def test_convolution_precision_default_is_float32() -> None:
    x, w = torch.randn(2, 16, 8, 8), torch.randn(16, 16, 3, 3)
    assert_near(F.conv2d(x.to("tpu"), w.to("tpu")), F.conv2d(x.double(), w.double()), tolerance=1e-6)
