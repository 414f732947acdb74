//! The speed of searches alone, in one environment and in many.

use std::time::{Duration, Instant};

use game::Game;
use games::MarketMaking;
use proto::weights::Published;
use selfplay::Round;

use super::Args;
use super::engine::Engine;
use super::players::{Player, players};
use super::workload::Workload;
use crate::network::published;
use crate::report::{Report, Unit, Value, value_of};
use crate::threads::together;

pub(super) const TRADING: &str = "trading";
const STEPS: &str = "steps/s";
const SIMULATIONS: &str = "simulations/s";
pub(super) const OVER_SEQUENTIAL: &str = "over one environment";

/// One kind of searches: the engine, and the numbers of environments and threads.
type Case = (Engine, usize, usize);

/// Adds the speed of market making with search: in one environment at a time, and in many.
///
/// # Errors
/// An engine fails.
pub(super) fn add_trading(report: &mut Report, args: &Args, engines: &[Engine]) -> anyhow::Result<()> {
    let threads = crate::machine::threads(args.workload.threads);
    let sizes = [(1, 1), (args.full.environments, 1), (args.full.environments, threads)];
    for engine in engines {
        let cases = sizes.map(|(environments, threads)| (engine.clone(), environments, threads));
        let (name, measured) = measure(&MarketMaking::new(), args, &cases)?;
        for ((environments, threads), values) in sizes.into_iter().zip(&measured) {
            report
                .at(TRADING, &[("engine", &name), ("environments", &environments), ("threads", &threads)])
                .values(values)
                .value(OVER_SEQUENTIAL, Unit::Ratio, over(values, &measured[0], STEPS));
        }
    }
    Ok(())
}

/// Returns the ratio of a metric to the same metric in `others`.
fn over(values: &[Value], others: &[Value], metric: &str) -> Option<f64> {
    Some(value_of(values, metric)? / value_of(others, metric)?)
}

/// Measures cases of one engine in turns. Returns the engine name and, per case, the values of the reported turn.
fn measure<G: Game, const N: usize>(
    game: &G,
    args: &Args,
    cases: &[Case; N],
) -> anyhow::Result<(String, [Vec<Value>; N])> {
    // Each thread computes by itself.
    network_torch::set_threads(1);
    let weights = published(args.workload.architecture(game.spec()), args.turns.seed)?;
    let (turns, mut name) = (args.turns, String::new());
    let mut measured = [const { Vec::new() }; N];
    for _ in 0..turns.repeats {
        for (case, values) in cases.iter().zip(&mut measured) {
            let (engine, speed) = speed(game, &weights, case, args)?;
            name = engine;
            values.push(speed);
        }
    }
    let speed = |values: &Vec<Value>| value_of(values, SIMULATIONS).unwrap_or(f64::NAN);
    Ok((name, measured.map(|values| turns.turn.of(values, speed).unwrap_or_default())))
}

/// Returns the name of the engine, and the total speed of all threads.
fn speed<G: Game>(
    game: &G,
    weights: &Published,
    (engine, environments, threads): &Case,
    args: &Args,
) -> anyhow::Result<(String, Vec<Value>)> {
    let time = args.turns.time()?;
    let workload = Workload { threads: *threads, ..args.workload.clone() };
    let mut players = players(game, &workload, *environments, (engine, weights), args.turns.seed)?;
    let warm_up = |player: &mut Player| play(player, time / 4).map(drop);
    let played = together(&[], &mut players, warm_up, |player| play(player, time))?;
    let per_second = |count: fn(&Round) -> usize| -> f64 {
        played.iter().map(|(round, seconds)| count(round) as f64 / seconds).sum()
    };
    let sum = |count: fn(&Round) -> usize| players.iter().map(|player| count(&player.round) as f64).sum::<f64>();
    let (simulations, evaluated) = (sum(|round| round.simulations), sum(|round| round.evaluated));
    // Policy, value and reward, which every caller receives.
    let answer_bytes = ((game.spec().actions + 2) * size_of::<f32>()) as f64;
    let values = vec![
        (STEPS, Unit::PerSecond, Some(per_second(|round| round.moves))),
        (SIMULATIONS, Unit::PerSecond, Some(per_second(|round| round.simulations))),
        ("mean batch", Unit::Count, Some(evaluated / sum(|round| round.batches))),
        ("answers per simulation", Unit::Bytes, Some(answer_bytes * evaluated / simulations)),
    ];
    Ok((players[0].model.attributes().name.to_string(), values))
}

/// Plays for a time, and returns the counts and the seconds.
fn play(player: &mut Player, time: Duration) -> anyhow::Result<(Round, f64)> {
    let (start, mut round) = (Instant::now(), Round::default());
    loop {
        round += player.episodes.advance(player.model.as_mut())?;
        player.episodes.drain_finished().for_each(drop);
        let elapsed = start.elapsed();
        if elapsed >= time {
            player.round += round;
            return Ok((round, elapsed.as_secs_f64()));
        }
    }
}
