//! Market making: a dealer quotes a bid and an ask around a randomly moving price, and earns the spread for the
//! inventory risk.
//!
//! The model is from Avellaneda and Stoikov 2008, "High-frequency trading in a limit order book", with transaction
//! costs; [`Market`] documents the model with constants. The tests compute the return moments of any policy without
//! sampling, such as the analytic policy of the paper, a yardstick for learned policies. Start with [`MarketMaking`].

mod market;

use game::{Action, Chance, Error, Game, Outcome};

use crate::entry::{Entry, Variants};
use crate::environment::{Constants, every_action_is_legal, hash, one_player, vector};
use crate::generator::Generator;
use crate::grid::narrow;
pub use market::{Market, Quotes, View};

/// The registry entry of market making.
pub const ENTRY: Entry = Entry::new("market_making", Variants::One, include_str!("../presets/market_making.toml"));

/// Offsets of a quote from the mid price: a grid around the analytic offsets, 0.74 to 0.94 without an inventory.
pub const OFFSETS: [f64; 5] = [0.0, 0.4, 0.8, 1.2, 1.8];
/// Maximum inventory, long or short: beyond it, the dealer does not quote the side that would add to it.
pub const INVENTORY_MAX: i8 = 20;

const ACTIONS: usize = OFFSETS.len() * OFFSETS.len();

/// Implements market making.
///
/// Action `5 b + a` quotes the bid [`OFFSETS`]`[b]` below the mid price and the ask `OFFSETS[a]` above it for one
/// step. Each quote is filled with the probability in [`Market`], for one unit; then the price moves. The reward is
/// the change of the dealer's wealth at the mid price, less fees and the penalty for inventory risk; in the last step
/// the inventory is liquidated at a cost. Observation `[3, 1, 1]`: inventory / 20, share of the time left, and last
/// price move (−1 or 1; 0 at the start).
#[derive(Debug, Clone)]
pub struct MarketMaking {
    constants: Constants,
    market: Market,
    /// Fill probability per step of a quote at each offset.
    fill_probabilities: [f64; OFFSETS.len()],
}

/// Holds a position of market making.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Units that the dealer owns; owes, if negative.
    inventory: i8,
    /// Last price move, in steps of σ √dt.
    last_move: i8,
    /// Sum of all moves.
    moves: i16,
    steps: u16,
    generator: Generator,
}

impl MarketMaking {
    /// Returns the registered environment, in the market [`Market::REGISTERED`].
    #[must_use]
    pub fn new() -> Self {
        Self::of(Market::REGISTERED)
    }

    /// Returns the environment for another market.
    #[must_use]
    pub fn of(market: Market) -> Self {
        let constants = Constants::new(ENTRY.name.into(), ACTIONS, vector(3), Market::STEPS.into());
        Self {
            constants: constants.with_finite_observation().with_chance(),
            market,
            fill_probabilities: OFFSETS.map(|offset| market.fill_probability(offset)),
        }
    }

    /// Returns the quotes of an action.
    #[must_use]
    pub fn quotes(&self, action: Action) -> Quotes {
        let [bid, ask] = levels(action).map(|level| OFFSETS[level]);
        Quotes { bid, ask }
    }
}

/// The random events of a step.
#[derive(Debug, Clone, Copy)]
struct Events {
    /// The bid is filled.
    buys: bool,
    /// The ask is filled.
    sells: bool,
    /// The price rises; otherwise it falls.
    rises: bool,
}

impl Events {
    const fn of(outcome: u16) -> Self {
        Self { buys: outcome & 4 != 0, sells: outcome & 2 != 0, rises: outcome & 1 != 0 }
    }
}

impl MarketMaking {
    /// Draws the events after an action.
    fn draw(&self, position: &mut Position, action: Action) -> Events {
        let [buys, sells] = levels(action).map(|level| position.generator.unit() < self.fill_probabilities[level]);
        Events {
            buys: buys && position.inventory < INVENTORY_MAX,
            sells: sells && position.inventory > -INVENTORY_MAX,
            rises: position.generator.bits() >> 63 != 0,
        }
    }

    /// Applies the events after an action; returns the reward.
    fn settle(&self, position: &mut Position, action: Action, Events { buys, sells, rises }: Events) -> f32 {
        let [bid, ask] = levels(action);
        let mut gain = 0.0;
        if buys {
            position.inventory += 1;
            gain += self.market.gain(OFFSETS[bid]);
        }
        if sells {
            position.inventory -= 1;
            gain += self.market.gain(OFFSETS[ask]);
        }
        position.last_move = if rises { 1 } else { -1 };
        position.moves += i16::from(position.last_move);
        position.steps += 1;
        (gain + self.market.holding(position.view(), position.last_move)) as f32
    }
}

impl Default for MarketMaking {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the offset indices of bid and ask.
fn levels(action: Action) -> [usize; 2] {
    [action.index() / OFFSETS.len(), action.index() % OFFSETS.len()]
}

impl Position {
    /// Returns the policy's view of the position.
    #[must_use]
    pub fn view(&self) -> View {
        View { inventory: self.inventory, steps_left: Market::STEPS - self.steps }
    }
}

impl Game for MarketMaking {
    type Position = Position;

    one_player!();
    every_action_is_legal!();

    fn start_from(&self, seed: u64) -> Position {
        Position { inventory: 0, last_move: 0, moves: 0, steps: 0, generator: Generator::new(seed) }
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        let events = self.draw(position, action);
        self.settle(position, action, events)
    }

    fn knows_chances(&self) -> bool {
        true
    }

    /// Outcome bits: 4 if the bid is filled, 2 if the ask is filled, 1 if the price rises.
    fn chances(&self, position: &Position, action: Action, chances: &mut Vec<Chance>) {
        let [bid, ask] = levels(action).map(|level| self.fill_probabilities[level]);
        let bid = if position.inventory < INVENTORY_MAX { bid } else { 0.0 };
        let ask = if position.inventory > -INVENTORY_MAX { ask } else { 0.0 };
        chances.clear();
        for outcome in 0..8 {
            let Events { buys, sells, .. } = Events::of(outcome);
            let of = |happens: bool, probability: f64| if happens { probability } else { 1.0 - probability };
            let probability = (0.5 * of(buys, bid) * of(sells, ask)) as f32;
            if probability > 0.0 {
                chances.push(Chance { outcome, probability });
            }
        }
    }

    fn play_chance(&self, position: &mut Position, action: Action, outcome: u16) -> f32 {
        self.draw(position, action);
        self.settle(position, action, Events::of(outcome))
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        (position.steps >= Market::STEPS).then_some(Outcome::Finished)
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        planes[0] = f32::from(position.inventory) / f32::from(INVENTORY_MAX);
        planes[1] = f32::from(position.view().steps_left) / f32::from(Market::STEPS);
        planes[2] = f32::from(position.last_move);
    }

    fn hash(&self, position: &Position) -> u64 {
        let [inventory, last_move] =
            [position.inventory, position.last_move].map(|part| u64::from(part.cast_unsigned()));
        let moves = u64::from(position.moves.cast_unsigned());
        hash([inventory << 32 | last_move << 16 | moves, position.steps.into(), position.generator.state()])
    }

    /// Returns the offsets of bid and ask from the mid price: `0.4/1.2`.
    fn action_name(&self, _: &Position, action: Action) -> String {
        let Quotes { bid, ask } = self.quotes(action);
        format!("{bid:.1}/{ask:.1}")
    }

    fn parse_action(&self, position: &Position, text: &str) -> Result<Action, Error> {
        let mut actions = (0..ACTIONS).map(|action| Action(narrow(action)));
        let error =
            || Error::Notation { text: text.into(), expected: "offsets of bid and ask, such as 0.4/1.2".into() };
        actions.find(|&action| self.action_name(position, action) == text.trim()).ok_or_else(error)
    }

    fn render(&self, position: &Position) -> String {
        let price = Market::START_PRICE + f64::from(position.moves) * self.market.price_step();
        format!("step {} of {}: price {price:.2}, inventory {}", position.steps, Market::STEPS, position.inventory)
    }
}

#[cfg(test)]
mod tests;
