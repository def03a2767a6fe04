"""The models, genome, regions and variants of the front doors' tests."""

from tests.test_public_api import home as home
