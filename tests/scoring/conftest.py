"""The models, genome, regions and variants of the front doors' tests."""

from tests.test_front_doors import home as home
