//! Collects the times from a repair until the fleet works again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::fault::{Kind, Service};

/// Recovery times after a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recovery {
    /// Time until the affected process worked again.
    pub service: Duration,
    /// Time until every actor had another trajectory acknowledged.
    pub actors: Duration,
    /// Time until another training step was made.
    pub training: Duration,
}

/// All recovery times of a run, by fault.
#[derive(Debug, Default)]
pub struct Recoveries {
    alone: BTreeMap<(Service, Kind), Vec<Recovery>>,
    together: Vec<Recovery>,
}

impl Recoveries {
    /// Adds the recovery after a single fault. All actors count as one service, and so do the replay servers.
    pub fn after(&mut self, service: Service, kind: Kind, recovery: Recovery) {
        let service = match service {
            Service::Actor(_) => Service::Actor(0),
            Service::Replay(_) => Service::Replay(0),
            other => other,
        };
        self.alone.entry((service, kind)).or_default().push(recovery);
    }

    /// Adds the recovery after two simultaneous faults, measured from the later repair.
    pub fn after_two(&mut self, recovery: Recovery) {
        self.together.push(recovery);
    }

    /// Formats the table of the docs: median and maximum of each time, in seconds.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| service | fault | times | itself: median | greatest | actors: median | greatest | training: median | greatest |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for ((service, kind), recoveries) in &self.alone {
            row(&mut text, &format!("{} | {kind}", service.role().program()), recoveries);
        }
        if !self.together.is_empty() {
            row(&mut text, "two of them | any, at once", &self.together);
        }
        let all: Vec<Recovery> = self.alone.values().flatten().chain(&self.together).copied().collect();
        if !all.is_empty() {
            row(&mut text, "any | any", &all);
        }
        text
    }
}

fn row(text: &mut String, what: &str, recoveries: &[Recovery]) {
    let mut cells = format!("| {what} | {} |", recoveries.len());
    for of in [|r: &Recovery| r.service, |r: &Recovery| r.actors, |r: &Recovery| r.training] {
        let mut times: Vec<Duration> = recoveries.iter().map(of).collect();
        times.sort_unstable();
        let greatest = times.last().copied().unwrap_or_default();
        for time in [times[times.len() / 2], greatest] {
            let _ = write!(cells, " {:.1} |", time.as_secs_f64());
        }
    }
    text.push_str(&cells);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_median_and_greatest_times_with_all_actors_as_one_service() {
        let recovery = |seconds| {
            let time = Duration::from_secs(seconds);
            Recovery { service: time, actors: time * 2, training: time * 3 }
        };
        let mut recoveries = Recoveries::default();
        for (actor, seconds) in [(0, 1), (1, 9), (2, 2)] {
            recoveries.after(Service::Actor(actor), Kind::Cut, recovery(seconds));
        }
        recoveries.after_two(recovery(4));
        let table = recoveries.table();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows[0], "| actor | cut off | 3 | 2.0 | 9.0 | 4.0 | 18.0 | 6.0 | 27.0 |");
        assert_eq!(rows[1], "| two of them | any, at once | 1 | 4.0 | 4.0 | 8.0 | 8.0 | 12.0 | 12.0 |");
        assert_eq!(rows.len(), 3);
    }
}
