import pytest


@pytest.fixture(scope="session")
def encoder_folder(torchvision):
    """Writes a folder with a small encoder; see `support.sentence`, which imports transformers."""
    from support.sentence import encoder_folder

    return encoder_folder
