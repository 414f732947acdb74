use std::path::Path;

use serde::{Deserialize, Serialize};

use super::report::Report;

/// An earlier report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Its file, as it was named.
    pub file: String,
    /// The model of its CPU.
    pub cpu: String,
}

/// What is read of an earlier report; engines by the names that people see.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Earlier {
    cpu: String,
    threads: usize,
    networks: Vec<EarlierNetwork>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct EarlierNetwork {
    network: String,
    engines: Vec<EarlierEngine>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct EarlierEngine {
    engine: String,
    speeds: Vec<EarlierSpeed>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct EarlierSpeed {
    batch: usize,
    evaluations_per_second: f64,
}

impl Earlier {
    fn speed(&self, network: &str, engine: &str, batch: usize) -> Option<f64> {
        let network = self.networks.iter().find(|earlier| earlier.network == network)?;
        let engine = network.engines.iter().find(|earlier| earlier.engine == engine)?;
        engine.speeds.iter().find(|speed| speed.batch == batch).map(|speed| speed.evaluations_per_second)
    }
}

/// Adds the ratio to every speed that an earlier report with as many threads has too.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Earlier) {
    report.compared = Some(Compared { file: path.display().to_string(), cpu: earlier.cpu.clone() });
    if report.threads != earlier.threads {
        return;
    }
    for network in &mut report.networks {
        for engine in &mut network.engines {
            let name = engine.engine.to_string();
            for speed in &mut engine.speeds {
                let before = earlier.speed(&network.network, &name, speed.batch);
                speed.ratio = before.map(|before| speed.evaluations_per_second / before);
            }
        }
    }
}

#[cfg(test)]
mod tests;
