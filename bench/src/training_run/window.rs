use crate::usage::{ThreadUsage, Usage};
use fleet::Role;
use fleet::exposition::{Exposition, increase};

/// One process at one time.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) exposition: Exposition,
    /// Unknown where the system has no figures.
    pub(crate) usage: Option<Usage>,
}

/// The readings of all processes of a run at the beginning and at the end of the measured time; in the same order, and
/// no process was started anew in between.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) seconds: f64,
    pub(crate) begin: Vec<Reading>,
    pub(crate) end: Vec<Reading>,
}

impl Window {
    /// Returns the growth of a series over all processes of a role. A series that did not exist at the beginning began
    /// at zero.
    pub(crate) fn growth(&self, role: Role, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let grown = self.processes().filter(|(_, end)| end.role == role).filter_map(|(begin, end)| {
            let before = begin.exposition.get(name, labels).unwrap_or(0.0);
            Some(increase(before, end.exposition.get(name, labels)?))
        });
        sum(grown)
    }

    /// The same for each second of the window.
    pub(crate) fn rate(&self, role: Role, name: &str) -> Option<f64> {
        self.growth(role, name, &[]).filter(|_| self.seconds > 0.0).map(|growth| growth / self.seconds)
    }

    /// A metric of the first process of a role at the end.
    pub(crate) fn last(&self, role: Role, name: &str) -> Option<f64> {
        self.end.iter().find(|reading| reading.role == role)?.exposition.get(name, &[])
    }

    /// A label of a series at the end; of several, that with the greatest value.
    pub(crate) fn label(&self, role: Role, name: &str, label: &str) -> Option<&str> {
        let of_role = self.end.iter().filter(|reading| reading.role == role);
        let series = of_role.flat_map(|reading| &reading.exposition.series).filter(|series| series.name == name);
        series.max_by(|a, b| a.value.total_cmp(&b.value))?.label(label)
    }

    /// CPU time of the threads of a role whose names begin so.
    pub(crate) fn cpu_seconds_of_threads(&self, role: Role, name: &str) -> Option<f64> {
        let of_role = self.processes().filter(|(_, end)| end.role == role);
        sum(of_role.filter_map(|(begin, end)| of_threads(begin.usage.as_ref()?, end.usage.as_ref()?, name)))
    }

    /// CPU time of all processes.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        sum(self.processes().filter_map(|(begin, end)| cpu_seconds(begin, end)))
    }

    /// Every process at the beginning and at the end.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (&Reading, &Reading)> {
        self.begin.iter().zip(&self.end)
    }
}

/// CPU time of a process.
pub(crate) fn cpu_seconds(begin: &Reading, end: &Reading) -> Option<f64> {
    Some((end.usage.as_ref()?.cpu_seconds - begin.usage.as_ref()?.cpu_seconds).max(0.0))
}

/// CPU time of the threads whose names begin so; a thread that was not there at the beginning began at zero.
pub(crate) fn of_threads(begin: &Usage, end: &Usage, name: &str) -> Option<f64> {
    let before = |thread: &ThreadUsage| {
        begin.threads.iter().find(|before| before.id == thread.id).map_or(0.0, |before| before.cpu_seconds)
    };
    let named = end.threads.iter().filter(|thread| thread.name.starts_with(name));
    sum(named.map(|thread| (thread.cpu_seconds - before(thread)).max(0.0)))
}

/// The sum; none of nothing.
fn sum(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{actor, learner, usage};
    use super::*;

    #[test]
    fn growth_is_summed_over_the_processes_of_a_role() {
        let window = Window {
            seconds: 10.0,
            begin: vec![actor("zerofleet_actor_games_total 5"), actor(""), learner("zerofleet_actor_games_total 7")],
            end: vec![
                actor("zerofleet_actor_games_total 25"),
                actor("zerofleet_actor_games_total 30"),
                learner("zerofleet_actor_games_total 900"),
            ],
        };
        assert_eq!(window.growth(Role::Actor, "zerofleet_actor_games_total", &[]), Some(50.0));
        assert_eq!(window.rate(Role::Actor, "zerofleet_actor_games_total"), Some(5.0));
        assert_eq!(window.growth(Role::Actor, "zerofleet_actor_plies_total", &[]), None);
    }

    #[test]
    fn the_label_in_use_is_that_of_the_greatest_value() {
        let end = vec![actor("evaluator{evaluator=\"old\"} 3\nevaluator{evaluator=\"new (f32)\"} 7")];
        let window = Window { seconds: 1.0, begin: vec![actor("")], end };
        assert_eq!(window.label(Role::Actor, "evaluator", "evaluator"), Some("new (f32)"));
        assert_eq!(window.label(Role::Learner, "evaluator", "evaluator"), None);
    }

    #[test]
    fn cpu_time_of_threads_is_theirs_by_id_and_a_new_thread_began_at_zero() {
        let begin = usage(&[(1, "selfplay-0", 2.0), (2, "tokio", 1.0)]);
        let end = usage(&[(1, "selfplay-0", 5.0), (2, "tokio", 9.0), (3, "selfplay-1", 4.0)]);
        assert_eq!(of_threads(&begin, &end, "selfplay-"), Some(7.0));
        assert_eq!(of_threads(&begin, &end, "train"), None);
    }

    #[test]
    fn what_no_system_tells_is_not_known() {
        let window = Window { seconds: 1.0, begin: vec![actor("")], end: vec![actor("")] };
        assert_eq!((window.cpu_seconds(), window.cpu_seconds_of_threads(Role::Actor, "selfplay-")), (None, None));
    }
}
