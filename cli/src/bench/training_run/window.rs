use crate::bench::usage::{ThreadUsage, Usage};
use crate::exposition::Exposition;
use crate::readings::Role;

/// One process at one time.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Reading {
    pub(in crate::bench) name: String,
    pub(in crate::bench) role: Role,
    pub(in crate::bench) exposition: Exposition,
    /// Unknown where the system does not tell.
    pub(in crate::bench) usage: Option<Usage>,
}

/// What every process of a run told at the beginning and at the end of the time that is measured; in the same order, and no
/// process was started anew in between.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Window {
    pub(in crate::bench) seconds: f64,
    pub(in crate::bench) begin: Vec<Reading>,
    pub(in crate::bench) end: Vec<Reading>,
}

impl Window {
    /// How much a series has grown, over all processes of a role. One that was not there at the beginning began at zero.
    pub(in crate::bench) fn growth(&self, role: Role, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let grown = self.processes().filter(|(_, end)| end.role == role).filter_map(|(begin, end)| {
            let before = begin.exposition.get(name, labels).unwrap_or(0.0);
            Some((end.exposition.get(name, labels)? - before).max(0.0))
        });
        sum(grown)
    }

    /// The same for each second of the window.
    pub(in crate::bench) fn rate(&self, role: Role, name: &str) -> Option<f64> {
        self.growth(role, name, &[]).filter(|_| self.seconds > 0.0).map(|growth| growth / self.seconds)
    }

    /// What the first process of a role says at the end.
    pub(in crate::bench) fn last(&self, role: Role, name: &str) -> Option<f64> {
        self.end.iter().find(|reading| reading.role == role)?.exposition.get(name, &[])
    }

    /// A label of a series at the end; of several, that with the greatest value.
    pub(in crate::bench) fn label(&self, role: Role, name: &str, label: &str) -> Option<&str> {
        let of_role = self.end.iter().filter(|reading| reading.role == role);
        let series = of_role.flat_map(|reading| &reading.exposition.series).filter(|series| series.name == name);
        series.max_by(|a, b| a.value.total_cmp(&b.value))?.label(label)
    }

    /// CPU time of the threads of a role whose names begin so.
    pub(in crate::bench) fn cpu_seconds_of_threads(&self, role: Role, name: &str) -> Option<f64> {
        let of_role = self.processes().filter(|(_, end)| end.role == role);
        sum(of_role.filter_map(|(begin, end)| of_threads(begin.usage.as_ref()?, end.usage.as_ref()?, name)))
    }

    /// CPU time of all processes.
    pub(in crate::bench) fn cpu_seconds(&self) -> Option<f64> {
        sum(self.processes().filter_map(|(begin, end)| cpu_seconds(begin, end)))
    }

    /// Every process at the beginning and at the end.
    pub(in crate::bench) fn processes(&self) -> impl Iterator<Item = (&Reading, &Reading)> {
        self.begin.iter().zip(&self.end)
    }
}

/// CPU time of a process.
pub(in crate::bench) fn cpu_seconds(begin: &Reading, end: &Reading) -> Option<f64> {
    Some((end.usage.as_ref()?.cpu_seconds - begin.usage.as_ref()?.cpu_seconds).max(0.0))
}

/// CPU time of the threads whose names begin so; a thread that was not there at the beginning began at zero.
pub(in crate::bench) fn of_threads(begin: &Usage, end: &Usage, name: &str) -> Option<f64> {
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
mod tests;
