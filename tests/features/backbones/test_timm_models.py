import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from diptych.errors import DiptychError, RecipeError
from diptych.features.backbone import crop_side
from diptych.features.backbones import timm_models
from diptych.features.crops import Crops

pytestmark = pytest.mark.usefixtures("timm")


def normalised(timm, network, pixels):
    config = timm.data.resolve_model_data_config(network)
    mean, deviation = (torch.tensor(config[key]).view(3, 1, 1) for key in ("mean", "std"))
    return (pixels.float() / 255 - mean) / deviation


def saved(timm, name, folder):
    """A network of timm with random weights and statistics, and its file."""
    torch.manual_seed(3)
    network = timm.create_model(name)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.1, 0.1)
    file = folder / "weights.safetensors"
    save_file(network.state_dict(), file)
    return network.eval(), file


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext", "test_efficientnet"])
@torch.no_grad()
def test_features_equal_the_input_of_the_classifier(name, timm, bytes_of, tmp_path):
    network, file = saved(timm, name, tmp_path)
    backbone = timm_models.load(f"timm:{name}", file).eval()
    pixels = bytes_of(backbone.side)
    features = network.forward_features(normalised(timm, network, pixels))
    expected = network.forward_head(features, pre_logits=True)
    torch.testing.assert_close(backbone(pixels), expected, rtol=1e-4, atol=1e-5)
    assert backbone(pixels).shape == (2, backbone.size)
    assert all(1000 not in tensor.shape for tensor in backbone.state_dict().values())


@torch.no_grad()
def test_regions_of_a_map_go_row_by_row(timm, bytes_of, tmp_path):
    network, file = saved(timm, "test_resnet", tmp_path)
    backbone = timm_models.load("timm:test_resnet", file).eval()
    pixels = bytes_of(backbone.side)
    grid = network.forward_features(normalised(timm, network, pixels))  # (2, channels, rows, columns)
    regions = backbone.regions(pixels)
    rows, columns = grid.shape[2:]
    assert regions.shape == (2, *backbone.grid) == (2, rows * columns, grid.shape[1])
    for row in range(rows):
        for column in range(columns):
            torch.testing.assert_close(
                regions[:, row * columns + column], grid[:, :, row, column], rtol=1e-4, atol=1e-5
            )


@torch.no_grad()
def test_regions_of_a_transformer_are_its_patches(timm, bytes_of, tmp_path):
    network, file = saved(timm, "test_vit", tmp_path)
    backbone = timm_models.load("timm:test_vit", file).eval()
    pixels = bytes_of(backbone.side)
    tokens = network.forward_features(normalised(timm, network, pixels))  # (2, 1 + patches, channels)
    torch.testing.assert_close(backbone.regions(pixels), tokens[:, 1:], rtol=1e-4, atol=1e-5)
    assert backbone.grid == (100, 64)


def test_a_map_with_the_channels_last_gives_the_same_cells():
    network = nn.Module()
    grid = torch.randn(2, 5, 3, 3)
    first = timm_models.cells(network, grid)
    network.output_fmt = "NHWC"
    torch.testing.assert_close(timm_models.cells(network, grid.permute(0, 2, 3, 1)), first)


@pytest.mark.parametrize(
    ("name", "size", "grid"),
    [
        ("resnet50", 2048, (49, 2048)),
        ("vgg19", 4096, (49, 512)),
        ("timm:swin_tiny_patch4_window7_224", 768, (49, 768)),
    ],
)
def test_the_shapes_of_the_papers_networks_and_of_others(name, size, grid):
    with torch.device("meta"):
        backbone = timm_models.build(name).eval()
        pixels = torch.empty(3, 3, backbone.side, backbone.side, dtype=torch.uint8)
        assert (backbone.name, backbone.side, backbone.size, backbone.grid) == (name, 224, size, grid)
        assert backbone(pixels).shape == (3, size)
        assert backbone.regions(pixels).shape == (3, *grid)


def test_the_papers_names_are_the_papers_weights(timm):
    for name, tagged in timm_models.PAPERS.items():
        assert tagged.split(".") == [name, "tv_in1k"]
        assert timm.models.is_model_pretrained(tagged)


@torch.no_grad()
def test_vgg_gives_the_second_fully_connected_layer_after_its_relu(timm, bytes_of):
    torch.manual_seed(0)
    network = timm.models.vgg.VGG([8, "M", 8, "M", 8, "M", 8, "M", 8, "M"], mlp_ratio=1 / 64)
    network.pretrained_cfg = timm.get_pretrained_cfg("vgg19").to_dict()
    backbone = timm_models.TimmBackbone("small", network, (4096, (49, 8))).eval()
    pixels = bytes_of(224, images=1)
    grid = backbone.regions(pixels).transpose(1, 2)  # (1, 8, 49): the order in which the papers' VGG flattens
    layers = network.pre_logits
    first = (layers.fc1.weight.flatten(1) @ grid.flatten() + layers.fc1.bias).clamp(min=0)
    second = (layers.fc2.weight.flatten(1) @ first + layers.fc2.bias).clamp(min=0)
    assert 0.2 < (second == 0).float().mean() < 0.8
    torch.testing.assert_close(backbone(pixels)[0], second, rtol=1e-3, atol=1e-5)


@torch.inference_mode()
def test_a_residual_network_reads_larger_squares_and_vgg_does_not(timm, bytes_of):
    larger = Crops(side=288)
    network = timm_models.build("resnet50").eval()
    assert crop_side(larger, network) == 288
    assert network(bytes_of(288, 1)).shape == (1, 2048)
    with torch.device("meta"):
        vgg = timm_models.build("vgg16")
    with pytest.raises(RecipeError, match="side = 288: vgg16 reads squares of 224 only"):
        crop_side(larger, vgg)


def test_a_network_without_a_grid_has_no_regions(bytes_of):
    with torch.device("meta"):
        backbone = timm_models.build("timm:convit_tiny").eval()
        assert backbone.grid == (0, 0)
        assert backbone(torch.empty(1, 3, 224, 224, dtype=torch.uint8)).shape == (1, backbone.size)
    with pytest.raises(RecipeError, match="'timm:convit_tiny': its last features are not a grid"):
        backbone.regions(bytes_of(224))


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("timm:resnet5O", "timm:resnet50"),
        ("timm:vit_base_patch16_242", "timm:vit_base_patch16_224"),
        ("timm:resnet50.tv_in1", "timm:resnet50.tv_in1k"),
        ("timm:test_vit.nope", "timm:test_vit.r160_in1k"),
    ],
)
def test_an_unknown_name_is_offered_the_nearest(name, offer):
    for make in (timm_models.build, timm_models.load):
        with pytest.raises(RecipeError, match=f"backbone '{name}': no such name; did you mean '{offer}'"):
            make(name)


def test_a_hub_that_cannot_be_reached_is_one_line(timm, monkeypatch):
    create = timm.create_model

    def unreachable(name, pretrained=False, **options):
        if pretrained:
            raise OSError("the hub\ncannot be reached")
        return create(name, **options)

    monkeypatch.setattr(timm, "create_model", unreachable)
    timm_models.build("timm:test_resnet")  # asks for no weights
    with pytest.raises(DiptychError, match=r"OSError: the hub cannot be reached.*safetensors file, or use lite0$"):
        timm_models.load("timm:test_resnet")


def test_a_file_that_does_not_fit_is_one_line(timm, tmp_path):
    _, file = saved(timm, "test_vit", tmp_path)
    with pytest.raises(DiptychError, match="does not fit the backbone 'timm:test_resnet'") as error:
        timm_models.load("timm:test_resnet", file)
    assert "\n" not in str(error.value)
    with pytest.raises(DiptychError, match="no such file of weights"):
        timm_models.load("timm:test_resnet", tmp_path / "none.safetensors")


def test_a_network_without_a_vector_is_refused(timm, monkeypatch):
    monkeypatch.setattr(timm.models.resnet.ResNet, "forward_head", lambda network, features: features)
    with pytest.raises(RecipeError, match="'timm:resnet26': gives no vector for an image"):
        timm_models.build("timm:resnet26")


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext", "test_efficientnet"])
@torch.no_grad()
def test_the_classifier_gives_the_networks_logits_from_the_backbones_vector(name, timm, bytes_of, tmp_path):
    network, file = saved(timm, name, tmp_path)
    backbone = timm_models.load(f"timm:{name}", file).eval()
    layer = timm_models.classifier(f"timm:{name}", file)
    pixels = bytes_of(backbone.side)
    logits = network(normalised(timm, network, pixels))
    assert layer.weight.shape == (network.num_classes, backbone.size)
    torch.testing.assert_close(layer(backbone(pixels)), logits, rtol=1e-4, atol=1e-4)


def test_a_classifier_without_a_bias_has_one_of_zeros(timm, monkeypatch, tmp_path):
    network, _ = saved(timm, "test_resnet", tmp_path)
    network.fc.bias = None
    monkeypatch.setattr(timm_models, "_pretrained", lambda *_: network)
    layer = timm_models.classifier("timm:test_resnet")
    assert torch.equal(layer.weight, network.fc.weight)
    assert not layer.bias.any()


@pytest.mark.parametrize(
    ("classifier", "reason"),
    [
        (nn.Sequential(nn.Linear(256, 4)), "its classifier is not one linear layer"),
        (nn.Linear(64, 4), "its classifier does not read the backbone's vector"),
    ],
)
def test_a_classifier_that_is_not_linear_on_the_vector_is_refused(classifier, reason, timm, monkeypatch, tmp_path):
    network, _ = saved(timm, "test_resnet", tmp_path)
    network.get_classifier = lambda: classifier
    monkeypatch.setattr(timm_models, "_pretrained", lambda *_: network)
    with pytest.raises(RecipeError, match=f"backbone 'timm:test_resnet': {reason}; use a backbone .* such as lite0$"):
        timm_models.classifier("timm:test_resnet")


def test_a_classifier_after_another_layer_is_refused(timm, monkeypatch, tmp_path):
    network, _ = saved(timm, "test_resnet", tmp_path)
    network.fc, layer = nn.Sequential(nn.LayerNorm(network.fc.in_features), network.fc), network.fc
    network.get_classifier = lambda: layer
    monkeypatch.setattr(timm_models, "_pretrained", lambda *_: network)
    with pytest.raises(RecipeError, match="its classifier does not read the backbone's vector"):
        timm_models.classifier("timm:test_resnet")
