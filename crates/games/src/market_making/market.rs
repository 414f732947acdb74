/// The constants of a market, in units of the price and the episode length, T = 1.
///
/// The mid price follows dS = σ dW, in steps of ±σ √dt with equal probability, as in section 3.3 of Avellaneda and
/// Stoikov 2008. A quote at distance δ is filled at the rate A exp(−k δ) (section 2.5): with probability A exp(−k δ)
/// dt, at most 1, per step.
///
/// The dealer in the paper has the utility −exp(−γ x). Here a holding of q units costs γ σ² q² dt / 2 per step, which
/// is equal to second order: holding q to the end then costs what the paper's reservation price implies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Market {
    /// σ, the volatility of the price.
    pub volatility: f64,
    /// A, the fill rate at the mid price, per episode.
    pub arrival_rate: f64,
    /// k, the decay of the fill rate with the distance.
    pub arrival_decay: f64,
    /// γ, the risk aversion.
    pub risk_aversion: f64,
    /// Fee per unit bought or sold.
    pub fee: f64,
    /// Cost per unit of inventory liquidated at the end: fee and half of the market's spread.
    pub liquidation_cost: f64,
}

/// Distances of bid and ask from the mid price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quotes {
    /// Mid price minus bid.
    pub bid: f64,
    /// Ask minus mid price.
    pub ask: f64,
}

/// A policy's view of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Units that the dealer owns; owes, if negative.
    pub inventory: i8,
    /// Number of steps left.
    pub steps_left: u16,
}

impl Market {
    /// Number of steps per episode: dt = 0.005, as in section 3.3 of the paper.
    pub const STEPS: u16 = 200;
    /// Mid price at the start.
    pub const START_PRICE: f64 = 100.0;
    /// The market of section 3.3 of the paper, with γ = 0.1 and added costs.
    pub const REGISTERED: Self = Self {
        volatility: 2.0,
        arrival_rate: 140.0,
        arrival_decay: 1.5,
        risk_aversion: 0.1,
        fee: 0.1,
        liquidation_cost: 0.5,
    };

    fn step_time() -> f64 {
        1.0 / f64::from(Self::STEPS)
    }

    /// Returns σ², the variance of price moves over an episode.
    fn variance(&self) -> f64 {
        // `powi` may differ in the last bit between machines.
        self.volatility * self.volatility
    }

    /// Returns σ √dt, the size of a price move.
    #[must_use]
    pub fn price_step(&self) -> f64 {
        self.volatility * Self::step_time().sqrt()
    }

    /// Returns the probability per step that a quote at this distance from the mid price is filled.
    #[must_use]
    pub fn fill_probability(&self, offset: f64) -> f64 {
        (self.arrival_rate * libm::exp(-self.arrival_decay * offset) * Self::step_time()).min(1.0)
    }

    /// Returns the gain of a fill at this distance, relative to the mid price.
    pub(super) fn gain(&self, offset: f64) -> f64 {
        offset - self.fee
    }

    /// Returns the gain of an inventory from a price move, less the risk penalty and, in the last step, the
    /// liquidation cost. `view` is the view after the step.
    pub(super) fn holding(&self, view: View, price_move: i8) -> f64 {
        let inventory = f64::from(view.inventory);
        let gain = inventory * f64::from(price_move) * self.price_step();
        let risk = 0.5 * self.risk_aversion * self.variance() * inventory * inventory * Self::step_time();
        let liquidation = if view.steps_left == 0 { self.liquidation_cost * inventory.abs() } else { 0.0 };
        gain - risk - liquidation
    }
}
