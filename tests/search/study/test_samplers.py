"""search.study.samplers, legal_samplers and points: proposals are legal, new, and get better."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from fake_evaluator import bowl
from small_search import points

from kernels.errors import InputError
from kernels.families.fused import TileConfig
from search.study.points import distributions, suggest
from search.study.samplers import SAMPLERS, SamplerTask, make_sampler

optuna.logging.set_verbosity(optuna.logging.ERROR)


def run(name: str, trials: int, seed: int = 0) -> list[tuple[str, TileConfig, float]]:
    """(family, configuration, value) of each trial of a study that minimises ``bowl``."""
    legal = points(seed)
    spaces = distributions(legal)
    study = optuna.create_study(sampler=make_sampler(name, SamplerTask(legal, spaces, seed, trials)))
    found = []
    for _ in range(trials):
        trial = study.ask()
        family, config = suggest(trial, spaces)
        legal.mark(family, config)
        value = bowl(config) + (family != "fused")
        study.tell(trial, value)
        found.append((family, config, value))
    return found


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_proposal_is_legal_and_new(name: str) -> None:
    found = run(name, trials=40)
    legal = points()
    assert all(legal.is_untried(family, config) for family, config, _ in found)
    assert len({(family, config) for family, config, _ in found}) == 40


@pytest.mark.parametrize("name", ["tpe", "surrogate"])
def test_a_model_gets_closer_to_the_best_point_than_random(name: str) -> None:
    regret = {one: [min(v for *_, v in run(one, 50, seed)) for seed in range(4)] for one in (name, "random")}
    assert np.mean(regret[name]) < np.mean(regret["random"])


def test_auto_covers_everything_when_the_budget_allows() -> None:
    total = points().total
    found = run("auto", trials=total)
    assert len({(family, config) for family, config, _ in found}) == total


@pytest.mark.parametrize("name", ["tpe", "surrogate"])
def test_the_same_seed_proposes_the_same_points(name: str) -> None:
    assert run(name, 20, seed=3) == run(name, 20, seed=3)


def test_an_unknown_sampler_is_refused_with_the_choice() -> None:
    legal = points()
    with pytest.raises(InputError, match=rf"'bogus'.*{', '.join(SAMPLERS)}"):
        make_sampler("bogus", SamplerTask(legal, distributions(legal), 0, 1))


def test_nearest_takes_the_wish_itself_while_it_is_untried() -> None:
    legal = points()
    wish = TileConfig(BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, num_warps=4, cache_modifier=".cg")
    assert legal.nearest("fused", wish.to_dict()) == ("fused", wish)
    legal.mark("fused", wish)
    family, second = legal.nearest("fused", wish.to_dict())
    assert family == "fused"
    differing = [name for name, value in wish.to_dict().items() if second.to_dict()[name] != value]
    assert len(differing) == 1  # one step away


def test_nearest_moves_to_another_family_when_one_is_exhausted() -> None:
    legal = points()
    while legal.is_untried("fused", config := legal.random("fused")[1]):
        legal.mark("fused", config)
        if legal.untried == len(legal.legal["fused_splitk_atomic"]):
            break
    assert legal.nearest("fused", TileConfig().to_dict())[0] == "fused_splitk_atomic"
