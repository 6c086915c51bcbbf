"""Points of the benchmark of exchanges: the ways in which replicas sum their gradients."""

from dataclasses import dataclass

from technique_points import from_entry


@dataclass(frozen=True)
class ExchangePoint:
    """One exchange of all gradients of a model, with one method over one link."""
    method: str
    link: str
    ranks: int
    latency_seconds: float
    bytes_per_second: float  # of the link; None if bytes take no time
    gradient_bytes: int
    message_bytes: int  # that a rank sends
    messages: int
    processor_seconds: float  # encoding, decoding and adding up
    link_seconds: float

    @property
    def seconds(self):
        return self.processor_seconds + self.link_seconds


@dataclass(frozen=True)
class ExchangeCrossover:
    """A method is faster than none below a bandwidth; without one (None), over all links or over none."""
    method: str
    ranks: int
    latency_seconds: float
    is_faster: bool
    bytes_per_second: float


@dataclass(frozen=True)
class ExchangeTraining:
    """Trainings with one method and several seeds."""
    method: str
    ranks: int
    sent_bytes: int  # by rank 0 for the gradients of a step
    error: float  # of the first step's gradients
    losses: list  # by seed, by step
    validation_losses: list  # by seed


def exchange_point(entry):
    return from_entry(ExchangePoint, entry)


def exchange_crossover(entry):
    return from_entry(ExchangeCrossover, {"bytes_per_second": None, **entry})


def exchange_training(entry):
    training = from_entry(ExchangeTraining, entry)
    if len(training.losses) != len(training.validation_losses) or not training.losses[0]:
        raise ValueError(f"{training.method}: a training without all of its losses")
    return training
