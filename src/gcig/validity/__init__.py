"""Does a measure find what it claims to find? Tables with known truth, and how detectors are scored."""

from gcig.validity.generators import GENERATORS as GENERATORS
from gcig.validity.generators import Generator as Generator
from gcig.validity.generators import KnownTruth as KnownTruth
from gcig.validity.generators import generate as generate
from gcig.validity.specification import load_vectors as load_vectors
from gcig.validity.truth import Truth as Truth
from gcig.validity.truth import known_truth as known_truth
