//! NVIDIA GPUs of this machine, as `nvidia-smi` describes them.

use std::fmt;
use std::process::Command;

use serde::Serialize;

use crate::workspace;

/// The first driver branch that supports CUDA 13, for which libtorch is compiled.
pub(crate) const DRIVER_MIN: f64 = 580.0;

/// A GPU and the driver version.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Gpu {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) driver: String,
    /// Version of the instruction set; `None` if the driver is too old to report it.
    pub(crate) compute_capability: Option<f64>,
    /// Size of the GPU's memory in MiB; `None` if CPU and GPU share memory.
    pub(crate) memory_mebibytes: Option<f64>,
}

impl Gpu {
    /// Returns the first number of the driver version, the branch.
    pub(crate) fn driver_branch(&self) -> Option<f64> {
        self.driver.split('.').next()?.parse().ok()
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, name, driver, compute_capability, memory_mebibytes } = self;
        let capability = compute_capability.map_or("unknown".to_owned(), |capability| format!("{capability:.1}"));
        let memory = memory_mebibytes.map_or("shared with the CPU".to_owned(), |memory| format!("{memory:.0} MiB"));
        write!(f, "GPU {index}: {name}, driver {driver}, compute capability {capability}, memory {memory}")
    }
}

/// Lists the GPUs; at least one.
///
/// # Errors
/// The reason why there is none.
pub(crate) fn list() -> Result<Vec<Gpu>, String> {
    const FIELDS: &str = "index,driver_version,memory.total,name";
    // Drivers before 510 do not report the compute capability.
    let text = query(&format!("compute_cap,{FIELDS}"))
        .or_else(|_| Ok::<_, String>(query(FIELDS)?.lines().map(|line| format!("unknown, {line}\n")).collect()))?;
    let gpus = parse(&text);
    if gpus.is_empty() { Err("nvidia-smi lists no GPU".to_owned()) } else { Ok(gpus) }
}

/// Returns one line per GPU with the values of these fields, or the reason why there is none.
pub(crate) fn query(fields: &str) -> Result<String, String> {
    // A driver in a bad state can block nvidia-smi forever.
    let mut command = Command::new("timeout");
    command.args(["30", "nvidia-smi", &format!("--query-gpu={fields}"), "--format=csv,noheader,nounits"]);
    workspace::output(&mut command).map_err(|error| match error.to_string() {
        text if text.contains("No such file") => "nvidia-smi not found".to_owned(),
        text => text.replace('\n', "; "),
    })
}

/// Parses lines of capability, index, driver, memory and name, which may contain commas; skips other lines.
pub(crate) fn parse(text: &str) -> Vec<Gpu> {
    let gpu = |line: &str| {
        let fields: Vec<&str> = line.splitn(5, ", ").map(str::trim).collect();
        let [capability, index, driver, memory, name] = fields[..] else { return None };
        Some(Gpu {
            index: index.parse().ok()?,
            name: name.to_owned(),
            driver: driver.to_owned(),
            compute_capability: capability.parse().ok(),
            memory_mebibytes: memory.parse().ok(),
        })
    };
    text.lines().filter_map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_parsed_also_with_a_comma_in_its_name() {
        let gpus = parse("9.0, 0, 580.159.04, 81559, NVIDIA H100 80GB HBM3, PCIe\n12.1, 1, 580.95.05, [N/A], GB10\n");
        let texts = [
            "GPU 0: NVIDIA H100 80GB HBM3, PCIe, driver 580.159.04, compute capability 9.0, memory 81559 MiB",
            "GPU 1: GB10, driver 580.95.05, compute capability 12.1, memory shared with the CPU",
        ];
        assert_eq!([&gpus[0], &gpus[1]].map(ToString::to_string), texts);
        assert_eq!((gpus.len(), gpus[0].driver_branch()), (2, Some(580.0)));
    }

    #[test]
    fn other_output_is_no_gpu() {
        for text in ["", "No devices were found\n", "a, b, c, d, e\n", "9.0, 0, half a line\n"] {
            assert_eq!(parse(text), [], "{text}");
        }
    }
}
