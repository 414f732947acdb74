use super::market::{Market, Quotes, View};
use super::{INVENTORY_MAX, OFFSETS};

/// Number of inventories, from −20 to 20.
const INVENTORIES: usize = 2 * INVENTORY_MAX.unsigned_abs() as usize + 1;

/// Mean and variance of the undiscounted episode return.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// Mean return.
    pub mean: f64,
    /// Variance of the return.
    pub variance: f64,
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
    #[must_use]
    pub fn moments(&self, policy: impl Fn(View) -> Quotes) -> Moments {
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
    #[must_use]
    pub fn best_mean(&self) -> f64 {
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
