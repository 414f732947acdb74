//! GPUs of this machine that `nvidia-smi` lists, and checks whether the CUDA half of libtorch runs on them.

use std::fmt;
use std::process::Command;

use super::VERSION;
use crate::workspace;

/// The first driver with CUDA 13, for which libtorch is compiled.
const DRIVER_MIN: u32 = 580;

/// Compute capability: a version of the instruction set of NVIDIA GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Capability {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A GPU with the driver for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gpu {
    index: String,
    name: String,
    driver: String,
    /// `None` if the driver is too old to report it.
    capability: Option<Capability>,
    /// As printed by `nvidia-smi`; `[N/A]` if CPU and GPU share memory.
    memory: String,
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, name, driver, capability, memory } = self;
        let capability = capability.map_or_else(|| "unknown".to_owned(), |capability| capability.to_string());
        write!(f, "GPU {index}: {name}, driver {driver}, compute capability {capability}, memory {memory}")
    }
}

impl Gpu {
    /// Returns the reason why libtorch cannot use this GPU, with a remedy.
    fn obstacle(&self, capability_min: Capability) -> Option<String> {
        // Driver versions have two or three numbers; the first is the branch.
        let branch = self.driver.split('.').next().and_then(|branch| branch.parse::<u32>().ok());
        if self.capability.is_some_and(|capability| capability < capability_min) {
            return Some(format!(
                "{self}; libtorch {VERSION} needs compute capability {capability_min} or higher, so this GPU cannot be used"
            ));
        }
        if branch.is_none_or(|branch| branch < DRIVER_MIN) || self.capability.is_none() {
            return Some(format!("{self}; CUDA 13 needs driver {DRIVER_MIN} or newer: update the NVIDIA driver"));
        }
        None
    }
}

/// Result of the search for GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Survey {
    /// At least one GPU can be used; `notes` names each unusable GPU.
    Usable { gpus: Vec<Gpu>, notes: Vec<String> },
    /// There are GPUs, but none can be used: one reason per GPU.
    TooOld(Vec<String>),
    /// There is no GPU; the text is the reason.
    Absent(String),
}

/// Searches for GPUs with `nvidia-smi`. An empty `CUDA_VISIBLE_DEVICES` hides every GPU, as for CUDA.
pub(super) fn survey(capability_min: Capability) -> Survey {
    if std::env::var("CUDA_VISIBLE_DEVICES").is_ok_and(|visible| ["", "-1"].contains(&visible.trim())) {
        return Survey::Absent("CUDA_VISIBLE_DEVICES hides all GPUs".to_owned());
    }
    // Drivers before 510 do not report the compute capability.
    let found = query("index,name,driver_version,compute_cap,memory.total")
        .map(|text| parse(&text, true))
        .or_else(|_| query("index,name,driver_version,memory.total").map(|text| parse(&text, false)));
    match found {
        Ok(gpus) => judge(gpus, capability_min),
        Err(why) => Survey::Absent(why),
    }
}

/// Returns one line per GPU, or the reason why there is none.
fn query(fields: &str) -> Result<String, String> {
    // A driver in a bad state can block nvidia-smi forever.
    let mut command = Command::new("timeout");
    command.args(["30", "nvidia-smi", &format!("--query-gpu={fields}"), "--format=csv,noheader"]);
    match workspace::output(&mut command) {
        Ok(text) => Ok(text),
        Err(error) if error.to_string().contains("No such file") => Err("nvidia-smi not found".to_owned()),
        Err(error) => Err(error.to_string().replace('\n', "; ")),
    }
}

/// Parses the lines of `nvidia-smi`; skips lines of another form. The name may contain commas.
fn parse(text: &str, has_capability: bool) -> Vec<Gpu> {
    text.lines().filter_map(|line| gpu(line, has_capability)).collect()
}

fn gpu(line: &str, has_capability: bool) -> Option<Gpu> {
    let (index, rest) = line.split_once(", ")?;
    index.trim().parse::<u32>().ok()?;
    let (rest, memory) = rest.rsplit_once(", ")?;
    let (rest, capability) = if has_capability { rest.rsplit_once(", ")? } else { (rest, "") };
    let (name, driver) = rest.rsplit_once(", ")?;
    let capability = capability.split_once('.').and_then(|(major, minor)| {
        Some(Capability { major: major.trim().parse().ok()?, minor: minor.trim().parse().ok()? })
    });
    let [index, name, driver, memory] = [index, name, driver, memory].map(|text| text.trim().to_owned());
    Some(Gpu { index, name, driver, capability, memory })
}

fn judge(gpus: Vec<Gpu>, capability_min: Capability) -> Survey {
    let notes: Vec<String> = gpus.iter().filter_map(|gpu| gpu.obstacle(capability_min)).collect();
    let usable: Vec<Gpu> = gpus.into_iter().filter(|gpu| gpu.obstacle(capability_min).is_none()).collect();
    match (usable.is_empty(), notes.is_empty()) {
        (false, _) => Survey::Usable { gpus: usable, notes },
        (true, false) => Survey::TooOld(notes),
        (true, true) => Survey::Absent("nvidia-smi lists no GPU".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Capability = Capability { major: 7, minor: 5 };

    fn survey_of(text: &str) -> Survey {
        judge(parse(text, true), MIN)
    }

    fn reasons(text: &str) -> Vec<String> {
        match survey_of(text) {
            Survey::TooOld(reasons) => reasons,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_gpu_with_a_new_driver_is_usable() {
        let survey = survey_of("0, NVIDIA H100 80GB HBM3, 580.95.05, 9.0, 81559 MiB\n");
        let Survey::Usable { gpus, notes } = survey else { panic!("{survey:?}") };
        let text = "GPU 0: NVIDIA H100 80GB HBM3, driver 580.95.05, compute capability 9.0, memory 81559 MiB";
        assert_eq!(gpus[0].to_string(), text);
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn an_old_driver_and_an_old_gpu_are_refused_with_what_was_found_and_what_is_needed() {
        let reason = &reasons("0, NVIDIA A100-SXM4-40GB, 535.183.01, 8.0, 40960 MiB\n")[0];
        assert!(reason.contains("driver 535.183.01") && reason.contains("580 or newer: update"), "{reason}");
        let reason = &reasons("0, NVIDIA GeForce GTX 1080 Ti, 580.65.06, 6.1, 11264 MiB\n")[0];
        assert!(reason.contains("capability 6.1") && reason.contains("7.5 or higher"), "{reason}");
        // A new driver would not help.
        let reason = &reasons("0, Tesla V100-PCIE-16GB, 470.57.02, 7.0, 16160 MiB\n")[0];
        assert!(!reason.contains("update"), "{reason}");
    }

    #[test]
    fn a_driver_that_reports_no_capability_is_too_old() {
        let survey = judge(parse("0, Tesla T4, 470.57.02, 15109 MiB\n", false), MIN);
        let Survey::TooOld(reasons) = survey else { panic!("{survey:?}") };
        assert!(reasons[0].contains("capability unknown") && reasons[0].contains("update"), "{reasons:?}");
    }

    #[test]
    fn one_usable_gpu_beside_an_old_one_is_enough_and_the_old_one_is_named() {
        let survey = survey_of(
            "0, NVIDIA GeForce GTX 1060, 3GB, 580.95.05, 6.1, 3072 MiB\n1, NVIDIA GB10, 580.95.05, 12.1, [N/A]\n",
        );
        let Survey::Usable { gpus, notes } = survey else { panic!("{survey:?}") };
        assert_eq!((gpus.len(), gpus[0].memory.as_str()), (1, "[N/A]"));
        assert!(notes.len() == 1 && notes[0].contains("GPU 0: NVIDIA GeForce GTX 1060, 3GB, driver"), "{notes:?}");
    }

    #[test]
    fn other_output_is_no_gpu() {
        for text in ["", "No devices were found\n", "a, b, c, d, e\n", "0, half a line\n"] {
            assert_eq!(survey_of(text), Survey::Absent("nvidia-smi lists no GPU".to_owned()), "{text}");
        }
    }
}
