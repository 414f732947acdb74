/// The constants of a market, in units of the price and of the length of an episode, which is T = 1.
///
/// The mid price follows dS = σ dW, in steps of ±σ √dt with equal probability, as in section 3.3 of Avellaneda and
/// Stoikov 2008. A quote at distance δ from it is filled at the rate A exp(−k δ) (section 2.5): with probability
/// A exp(−k δ) dt, at most 1, in a step.
///
/// The dealer of the paper has the utility −exp(−γ x). Here a holding of q units costs γ σ² q² dt / 2 in a step, which
/// is the same to second order: holding q to the end then costs what the paper's reservation price states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Market {
    /// σ: the volatility of the price.
    pub volatility: f64,
    /// A: the rate of fills at the mid price, per episode.
    pub arrival_rate: f64,
    /// k: the decay of that rate with the distance.
    pub arrival_decay: f64,
    /// γ: the risk aversion.
    pub risk_aversion: f64,
    /// The fee for each unit that is bought or sold.
    pub fee: f64,
    /// The cost of each unit of inventory that is sold or bought at the end: fee and half the spread of others.
    pub liquidation_cost: f64,
}

/// The distances of bid and ask from the mid price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quotes {
    /// The mid price less the bid.
    pub bid: f64,
    /// The ask less the mid price.
    pub ask: f64,
}

/// What a policy sees of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The units that the dealer owns; owes, if negative.
    pub inventory: i8,
    /// The number of steps that are left.
    pub steps_left: u16,
}

impl Quotes {
    /// Returns quotes at the same distance: a fixed spread.
    #[must_use]
    pub const fn symmetric(offset: f64) -> Self {
        Self { bid: offset, ask: offset }
    }
}

impl View {
    /// Returns T − t, the share of the episode that is left.
    #[must_use]
    pub fn time_left(self) -> f64 {
        f64::from(self.steps_left) / f64::from(Market::STEPS)
    }
}

impl Market {
    /// The number of steps of an episode: dt = 0.005, as in section 3.3 of the paper.
    pub const STEPS: u16 = 200;
    /// The mid price at the start.
    pub const START_PRICE: f64 = 100.0;
    /// The market of section 3.3 of the paper, with γ = 0.1, to which costs are added.
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

    /// Returns σ², the variance of the price's moves over an episode.
    fn variance(&self) -> f64 {
        // `powi` may differ in the last bit between machines.
        self.volatility * self.volatility
    }

    /// Returns σ √dt, the size of a move of the price.
    #[must_use]
    pub fn price_step(&self) -> f64 {
        self.volatility * Self::step_time().sqrt()
    }

    /// Returns the probability that a quote at this distance from the mid price is filled in a step.
    #[must_use]
    pub fn fill_probability(&self, offset: f64) -> f64 {
        (self.arrival_rate * libm::exp(-self.arrival_decay * offset) * Self::step_time()).min(1.0)
    }

    /// Returns the gain of a fill at this distance, relative to the mid price.
    pub(super) fn gain(&self, offset: f64) -> f64 {
        offset - self.fee
    }

    /// Returns what an inventory gains by a move of the price, less the penalty for its risk and, in the last step, the
    /// cost of its liquidation. `view` is that after the step.
    pub(super) fn holding(&self, view: View, price_move: i8) -> f64 {
        let inventory = f64::from(view.inventory);
        let gain = inventory * f64::from(price_move) * self.price_step();
        let risk = 0.5 * self.risk_aversion * self.variance() * inventory * inventory * Self::step_time();
        let liquidation = if view.steps_left == 0 { self.liquidation_cost * inventory.abs() } else { 0.0 };
        gain - risk - liquidation
    }

    /// Returns the reservation price less the mid price, −q γ σ² (T − t): equation 8 of the paper.
    #[must_use]
    pub fn reservation_offset(&self, view: View) -> f64 {
        -f64::from(view.inventory) * self.risk_aversion * self.variance() * view.time_left()
    }

    /// Returns the optimal distance of ask and bid of the paper, γ σ² (T − t) + (2 / γ) ln(1 + γ / k): equation 30.
    #[must_use]
    pub fn optimal_spread(&self, view: View) -> f64 {
        let (risk_aversion, decay) = (self.risk_aversion, self.arrival_decay);
        let of_risk = risk_aversion * self.variance() * view.time_left();
        of_risk + 2.0 / risk_aversion * libm::log1p(risk_aversion / decay)
    }

    /// Returns the quotes of the analytic policy: the optimal spread around the reservation price, and on each side the
    /// fee, by which exactly the optimal quotes move under an exponential rate of fills.
    #[must_use]
    pub fn analytic_quotes(&self, view: View) -> Quotes {
        let (half, reservation) = (0.5 * self.optimal_spread(view) + self.fee, self.reservation_offset(view));
        Quotes { bid: half - reservation, ask: half + reservation }
    }
}
