use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;

impl Quotes {
    /// Returns quotes at equal distances: a fixed spread.
    const fn symmetric(offset: f64) -> Self {
        Self { bid: offset, ask: offset }
    }
}

impl View {
    /// Returns T − t, the remaining share of the episode.
    fn time_left(self) -> f64 {
        f64::from(self.steps_left) / f64::from(Market::STEPS)
    }
}

impl Market {
    /// Returns the reservation price minus the mid price, −q γ σ² (T − t): equation 8 of the paper.
    fn reservation_offset(&self, view: View) -> f64 {
        -f64::from(view.inventory) * self.risk_aversion * self.volatility.powi(2) * view.time_left()
    }

    /// Returns the paper's optimal distance between ask and bid, γ σ² (T − t) + (2 / γ) ln(1 + γ / k): equation 30.
    fn optimal_spread(&self, view: View) -> f64 {
        let (risk_aversion, decay) = (self.risk_aversion, self.arrival_decay);
        let of_risk = risk_aversion * self.volatility.powi(2) * view.time_left();
        of_risk + 2.0 / risk_aversion * libm::log1p(risk_aversion / decay)
    }

    /// Returns the quotes of the analytic policy: the optimal spread around the reservation price, and the fee on
    /// each side. Under an exponential fill rate, the optimal quotes move by exactly the fee.
    fn analytic_quotes(&self, view: View) -> Quotes {
        let (half, reservation) = (0.5 * self.optimal_spread(view) + self.fee, self.reservation_offset(view));
        Quotes { bid: half - reservation, ask: half + reservation }
    }
}

impl MarketMaking {
    /// Returns the action with the nearest quotes.
    fn nearest_action(&self, quotes: Quotes) -> Action {
        let distance = |level: usize, offset: f64| (OFFSETS[level] - offset).abs();
        let nearest = |offset: f64| {
            (1..OFFSETS.len())
                .fold(0, |best, level| if distance(level, offset) < distance(best, offset) { level } else { best })
        };
        Action(narrow(nearest(quotes.bid) * OFFSETS.len() + nearest(quotes.ask)))
    }

    /// Returns the action of the analytic policy, rounded to the action grid.
    fn analytic_action(&self, position: &Position) -> Action {
        self.nearest_action(self.market.analytic_quotes(position.view()))
    }
}

/// Number of inventories, from −20 to 20.
const INVENTORIES: usize = 2 * INVENTORY_MAX.unsigned_abs() as usize + 1;

/// Mean and variance of the undiscounted episode return.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Moments {
    /// Mean return.
    mean: f64,
    /// Variance of the return.
    variance: f64,
}

/// Raw moments of the return after a view.
#[derive(Debug, Clone, Copy, Default)]
struct Raw {
    first: f64,
    second: f64,
}

/// Raw moments by inventory.
type Table = [Raw; INVENTORIES];

impl Market {
    /// Returns the return moments of a policy from the start, by backward recursion over all inventories, without
    /// sampling.
    fn moments(&self, policy: impl Fn(View) -> Quotes) -> Moments {
        let table = (1..=Self::STEPS).fold([Raw::default(); INVENTORIES], |after, steps_left| {
            table(|inventory| {
                let view = View { inventory, steps_left };
                self.before(&after, view, policy(view))
            })
        });
        let Raw { first, second } = table[index(0)];
        Moments { mean: first, variance: second - first * first }
    }

    /// Returns the maximum mean return of any policy on the action grid, by dynamic programming.
    fn best_mean(&self) -> f64 {
        let table = (1..=Self::STEPS).fold([Raw::default(); INVENTORIES], |after, steps_left| {
            table(|inventory| {
                let quotes = OFFSETS.into_iter().flat_map(|bid| OFFSETS.map(|ask| Quotes { bid, ask }));
                let all = quotes.map(|quotes| self.before(&after, View { inventory, steps_left }, quotes));
                all.max_by(|a, b| a.first.total_cmp(&b.first)).expect("a grid of actions")
            })
        });
        table[index(0)].first
    }

    /// Returns the moments before a step from the moments after it.
    fn before(&self, after: &Table, view: View, quotes: Quotes) -> Raw {
        let View { inventory, steps_left } = view;
        let fill = |is_quoted: bool, offset: f64| if is_quoted { self.fill_probability(offset) } else { 0.0 };
        let buy = fill(inventory < INVENTORY_MAX, quotes.bid);
        let sell = fill(inventory > -INVENTORY_MAX, quotes.ask);
        let mut sum = Raw::default();
        for (bought, of_bid) in [(0, 1.0 - buy), (1, buy)] {
            for (sold, of_ask) in [(0, 1.0 - sell), (1, sell)] {
                // A side without a quote has probability 0, and may leave the range.
                let inventory = (inventory + bought - sold).clamp(-INVENTORY_MAX, INVENTORY_MAX);
                let gain = f64::from(bought) * self.gain(quotes.bid) + f64::from(sold) * self.gain(quotes.ask);
                let next = after[index(inventory)];
                for price_move in [-1, 1] {
                    let view = View { inventory, steps_left: steps_left - 1 };
                    let reward = gain + self.holding(view, price_move);
                    let probability = 0.5 * of_bid * of_ask;
                    sum.first += probability * (reward + next.first);
                    sum.second += probability * (reward * reward + 2.0 * reward * next.first + next.second);
                }
            }
        }
        sum
    }
}

fn index(inventory: i8) -> usize {
    usize::try_from(i16::from(inventory) + i16::from(INVENTORY_MAX)).expect("an inventory in its range")
}

fn table(moments_of: impl Fn(i8) -> Raw) -> Table {
    let mut table = [Raw::default(); INVENTORIES];
    for inventory in -INVENTORY_MAX..=INVENTORY_MAX {
        table[index(inventory)] = moments_of(inventory);
    }
    table
}

/// Plays episodes by a policy; returns the moments of the returns.
fn sampled(game: &MarketMaking, episodes: u32, policy: impl Fn(&Position) -> Action) -> Moments {
    let play = |seed: u32| {
        let mut position = game.start_from(seed.into());
        let mut sum = 0.0;
        while game.outcome(&position).is_none() {
            let action = policy(&position);
            sum += f64::from(game.play(&mut position, action));
        }
        sum
    };
    let returns: Vec<f64> = (0..episodes).map(play).collect();
    moments_of(&returns)
}

fn moments_of(returns: &[f64]) -> Moments {
    let count = returns.len() as f64;
    let mean = returns.iter().sum::<f64>() / count;
    let variance = returns.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Moments { mean, variance }
}

/// Asserts that sampled moments lie within six standard errors of exact moments. The returns are nearly normal.
fn assert_agree(sampled: Moments, exact: Moments, episodes: u32) {
    let mean_error = (exact.variance / f64::from(episodes)).sqrt();
    let variance_error = exact.variance * (2.0 / f64::from(episodes)).sqrt();
    let agree = (sampled.mean - exact.mean).abs() < 6.0 * mean_error
        && (sampled.variance - exact.variance).abs() < 6.0 * variance_error;
    assert!(agree, "sampled {sampled:?}, exact {exact:?}");
}

#[test]
fn returns_of_the_analytic_policy_and_of_fixed_spreads_have_their_exact_moments() {
    const EPISODES: u32 = 3000;
    let game = MarketMaking::new();
    let on_the_grid = |view: View| game.quotes(game.nearest_action(game.market.analytic_quotes(view)));
    let exact = game.market.moments(on_the_grid);
    assert_agree(sampled(&game, EPISODES, |position| game.analytic_action(position)), exact, EPISODES);
    for offset in OFFSETS {
        let quotes = Quotes::symmetric(offset);
        let exact = game.market.moments(|_| quotes);
        assert_agree(sampled(&game, EPISODES, |_| game.nearest_action(quotes)), exact, EPISODES);
    }
}

#[test]
fn without_fills_nothing_is_gained_or_lost() {
    let game = MarketMaking::of(Market { arrival_rate: 0.0, ..Market::REGISTERED });
    let moments = sampled(&game, 20, |_| Action(0));
    assert_eq!(moments, Moments { mean: 0.0, variance: 0.0 });
    assert_eq!(game.market.moments(|_| Quotes::symmetric(0.0)), Moments { mean: 0.0, variance: 0.0 });
}

#[test]
fn fills_that_never_miss_alternate_nothing_and_earn_the_spread_in_every_step() {
    let market = Market { arrival_rate: 1e9, ..Market::REGISTERED };
    let game = MarketMaking::of(market);
    // Every step buys and sells one unit, each 0.8 away from the price, less two fees.
    let expected = 200.0 * 2.0 * (0.8 - 0.1);
    let moments = sampled(&game, 20, |_| game.nearest_action(Quotes::symmetric(0.8)));
    assert!((moments.mean - expected).abs() < 1e-3 && moments.variance < 1e-6, "{moments:?}");
}

/// Simulates section 3.3 of the paper as written, with a cash account and a price, and returns the terminal wealth.
/// Only the constants are shared with the environment.
fn terminal_wealth(rng: &mut impl Rng) -> f64 {
    const SIGMA: f64 = 2.0;
    const A: f64 = 140.0;
    const K: f64 = 1.5;
    const GAMMA: f64 = 0.1;
    const DT: f64 = 0.005;
    let (mut price, mut cash, mut units) = (100.0, 0.0, 0.0);
    for step in 0..200 {
        let left = 1.0 - f64::from(step) * DT;
        let reservation = price - units * GAMMA * SIGMA * SIGMA * left;
        let spread = GAMMA * SIGMA * SIGMA * left + 2.0 / GAMMA * (1.0 + GAMMA / K).ln();
        let (bid, ask) = (reservation - spread / 2.0, reservation + spread / 2.0);
        let mut is_hit = |distance: f64| rng.random::<f64>() < A * (-K * distance).exp() * DT;
        let [buys, sells] = [price - bid, ask - price].map(&mut is_hit);
        if buys {
            (cash, units) = (cash - bid, units + 1.0);
        }
        if sells {
            (cash, units) = (cash + ask, units - 1.0);
        }
        price += if rng.random::<bool>() { SIGMA * DT.sqrt() } else { -SIGMA * DT.sqrt() };
    }
    cash + units * price
}

#[test]
fn the_analytic_policy_has_the_terminal_wealth_of_a_simulation_of_the_paper() {
    const EPISODES: u32 = 10_000;
    // The paper has no costs, and terminal wealth has no penalty for risk.
    let quoting = Market { fee: 0.0, ..Market::REGISTERED };
    let scoring = Market { risk_aversion: 0.0, fee: 0.0, liquidation_cost: 0.0, ..Market::REGISTERED };
    let exact = scoring.moments(|view| quoting.analytic_quotes(view));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let wealth: Vec<f64> = (0..EPISODES).map(|_| terminal_wealth(&mut rng)).collect();
    assert_agree(moments_of(&wealth), exact, EPISODES);
}

#[test]
fn the_return_is_the_wealth_that_an_account_of_cash_ends_with_less_the_penalty_for_risk() {
    let game = MarketMaking::new();
    let market = game.market;
    for seed in 0..200 {
        let mut choice = Generator::new(seed);
        let mut position = game.start_from(seed);
        let (mut cash, mut penalty, mut sum) = (0.0, 0.0, 0.0);
        let price = |position: &Position| 100.0 + 2.0 * 0.005_f64.sqrt() * f64::from(position.moves);
        while game.outcome(&position).is_none() {
            let action = Action(narrow(choice.below(ACTIONS)));
            let (quotes, before) = (game.quotes(action), position);
            sum += f64::from(game.play(&mut position, action));
            // An unchanged inventory comes from no fill or from both fills, with different rewards.
            cash += match position.inventory - before.inventory {
                1 => -(price(&before) - quotes.bid) - 0.1,
                -1 => price(&before) + quotes.ask - 0.1,
                _ => both_fills(&game, before, action),
            };
            penalty += 0.1 / 2.0 * 4.0 * 0.005 * f64::from(position.inventory).powi(2);
        }
        let units = f64::from(position.inventory);
        let wealth = cash + units * price(&position) - market.liquidation_cost * units.abs();
        // Rewards are single precision.
        assert!((sum - (wealth - penalty)).abs() < 1e-3, "seed {seed}: {sum}, {wealth} − {penalty}");
    }
}

/// Returns the cash of a step without an inventory change, from the draws of the generator.
fn both_fills(game: &MarketMaking, before: Position, action: Action) -> f64 {
    let mut generator = before.generator;
    let Quotes { bid, ask } = game.quotes(action);
    let is_filled = generator.unit() < game.market.fill_probability(bid);
    let is_quoted = before.inventory.abs() < INVENTORY_MAX;
    if is_filled && is_quoted { bid + ask - 0.2 } else { 0.0 }
}

#[test]
fn the_best_policy_on_the_grid_beats_the_analytic_one_which_beats_every_fixed_spread() {
    let market = Market::REGISTERED;
    let analytic = market.moments(|view| market.analytic_quotes(view)).mean;
    let fixed = (0..400).map(|offset| market.moments(|_| Quotes::symmetric(f64::from(offset) / 100.0)).mean);
    let fixed = fixed.max_by(f64::total_cmp).unwrap();
    let game = MarketMaking::new();
    let rounded = market.moments(|view| game.quotes(game.nearest_action(market.analytic_quotes(view)))).mean;
    // The values in docs/environments.md.
    let means = [fixed, rounded, analytic, market.best_mean()];
    let agree = means.iter().zip([49.25, 53.31, 54.23, 55.75]).all(|(mean, figure)| (mean - figure).abs() < 0.01);
    assert!(agree, "{means:?}");
}

#[test]
fn the_analytic_quotes_lean_against_the_inventory_less_and_less_as_time_passes() {
    let market = Market::REGISTERED;
    let quotes = |inventory, steps_left| market.analytic_quotes(View { inventory, steps_left });
    let Quotes { bid, ask } = quotes(0, 200);
    assert!((bid - ask).abs() < 1e-12);
    // γ σ² / 2 + ln(1 + γ / k) / γ + fee.
    assert!((bid - (0.2 + 0.645_385 + 0.1)).abs() < 1e-6, "{bid}");
    let [early, late] = [200, 20].map(|steps_left| quotes(5, steps_left));
    assert!((early.bid - early.ask - 4.0).abs() < 1e-12, "twice 5 γ σ²: {early:?}");
    assert!((late.bid - late.ask - 0.4).abs() < 1e-12, "{late:?}");
}

#[test]
fn the_inventory_never_leaves_its_range() {
    let game = MarketMaking::of(Market { arrival_rate: 1e9, ..Market::REGISTERED });
    let mut position = Position { inventory: INVENTORY_MAX, ..game.start() };
    game.play(&mut position, Action(0));
    assert_eq!(position.inventory, INVENTORY_MAX - 1, "a full dealer only sells");
}
