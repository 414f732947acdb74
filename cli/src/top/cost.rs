//! Computes the cost of a fleet from prices per hour and running times.

use std::str::FromStr;

use anyhow::{anyhow, bail, ensure};
use serde::Serialize;

use fleet::Role;

/// Maximum price per hour, in any currency.
const PRICE_MAX: f64 = 1e12;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// A price per hour, for a role or the whole fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Price {
    /// Role with this price per process; `None` if the price is for the whole fleet.
    role: Option<Role>,
    per_hour: f64,
}

impl FromStr for Price {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (role, price) = match text.split_once('=') {
            Some((role, price)) => (Some(role_of(role)?), price),
            None => (None, text),
        };
        let per_hour: f64 = price.trim().parse().map_err(|_| anyhow!("invalid price `{price}`"))?;
        ensure!((0.0..=PRICE_MAX).contains(&per_hour), "the price per hour must be from 0 to {PRICE_MAX}, not {price}");
        Ok(Self { role, per_hour })
    }
}

fn role_of(name: &str) -> anyhow::Result<Role> {
    let found = Role::ALL.into_iter().find(|role| role.name() == name.trim());
    found.ok_or_else(|| anyhow!("invalid role `{name}`; roles are {}", Role::ALL.map(Role::name).join(", ")))
}

/// Checks that the prices are either one price for the whole fleet or at most one price per role.
pub(super) fn check(prices: &[Price]) -> anyhow::Result<()> {
    for (index, price) in prices.iter().enumerate() {
        if prices[..index].iter().any(|other| other.role == price.role) {
            bail!("--price-per-hour is given twice for {}", price.role.map_or("the whole fleet", Role::name));
        }
    }
    let whole = prices.iter().any(|price| price.role.is_none());
    ensure!(!whole || prices.len() == 1, "--price-per-hour: give one price for the whole fleet, or one per role");
    Ok(())
}

/// The cost of all processes found since this program started, in the currency of the prices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Cost {
    pub(super) per_hour: f64,
    /// Total cost of all processes, each from the process start until now or until the process was lost. Processes that
    /// exited before this program started are not included.
    pub(super) so_far: f64,
}

/// The running time of one process, as input to the cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Running {
    pub(super) role: Option<Role>,
    pub(super) seconds: f64,
    pub(super) runs: bool,
}

/// Computes the cost of `processes` from `prices`; `None` without prices.
pub(super) fn cost(prices: &[Price], processes: &[Running]) -> Option<Cost> {
    if let [Price { role: None, per_hour }] = prices {
        let longest = processes.iter().map(|process| process.seconds).fold(0.0, f64::max);
        return Some(Cost { per_hour: *per_hour, so_far: per_hour * longest / SECONDS_PER_HOUR });
    }
    let price_of =
        |process: &Running| prices.iter().find(|price| price.role == process.role).map_or(0.0, |price| price.per_hour);
    (!prices.is_empty()).then(|| Cost {
        per_hour: processes.iter().filter(|process| process.runs).map(price_of).sum(),
        so_far: processes.iter().map(|process| price_of(process) * process.seconds / SECONDS_PER_HOUR).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(texts: &[&str]) -> Vec<Price> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn running(role: Role, hours: f64, runs: bool) -> Running {
        Running { role: Some(role), seconds: hours * SECONDS_PER_HOUR, runs }
    }

    #[test]
    fn a_price_of_the_whole_fleet_runs_as_long_as_its_oldest_process() {
        let processes = [running(Role::Learner, 2.0, true), running(Role::Actor, 0.5, true)];
        assert_eq!(cost(&prices(&["1.5"]), &processes), Some(Cost { per_hour: 1.5, so_far: 3.0 }));
        assert_eq!(cost(&[], &processes), None);
    }

    #[test]
    fn a_price_of_a_role_is_paid_for_each_process_while_it_runs() {
        let processes =
            [running(Role::Learner, 2.0, true), running(Role::Actor, 0.5, true), running(Role::Actor, 1.5, false)];
        let cost = cost(&prices(&["learner=3", "actor=0.25"]), &processes).unwrap();
        assert_eq!((cost.per_hour, cost.so_far), (3.25, 6.5), "a lost process counts until its loss");
    }

    #[test]
    fn invalid_prices_are_rejected() {
        for (text, reason) in [
            ("x", "invalid price `x`"),
            ("NaN", "the price per hour must be"),
            ("-1", "the price per hour must be"),
            ("cook=1", "invalid role `cook`"),
        ] {
            let error = text.parse::<Price>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(check(&prices(&["1", "actor=1"])).is_err());
        assert!(check(&prices(&["actor=2", "actor=1"])).unwrap_err().to_string().contains("twice for actor"));
        assert!(check(&prices(&["actor=2", "learner=1"])).is_ok());
    }
}
