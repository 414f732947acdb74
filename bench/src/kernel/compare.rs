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
mod tests {
    use super::super::testing::report;
    use super::*;

    #[test]
    fn speeds_are_compared_with_the_same_network_engine_and_batch() {
        let mut now = report();
        let text = serde_json::to_string(&now).unwrap();
        let mut earlier: Earlier = serde_json::from_str(&text).unwrap();
        earlier.cpu = "Another CPU".to_owned();
        for engine in &mut earlier.networks[0].engines {
            engine.speeds.iter_mut().for_each(|speed| speed.evaluations_per_second /= 2.0);
            engine.speeds.retain(|speed| speed.batch != 8);
        }
        compare(&mut now, Path::new("before.json"), &earlier);
        for speed in now.networks[0].engines.iter().flat_map(|engine| &engine.speeds) {
            assert_eq!(speed.ratio, (speed.batch != 8).then_some(2.0), "{speed:?}");
        }
        let compared = now.compared.unwrap();
        assert_eq!((compared.file.as_str(), compared.cpu.as_str()), ("before.json", "Another CPU"));
    }

    #[test]
    fn other_numbers_of_threads_are_not_compared() {
        let mut now = report();
        let mut earlier: Earlier = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
        earlier.threads += 1;
        compare(&mut now, Path::new("before.json"), &earlier);
        assert!(now.networks[0].engines.iter().flat_map(|engine| &engine.speeds).all(|speed| speed.ratio.is_none()));
    }
}
