//! Measures the speed of the parts of zerofleet, relative to upper bounds measured in the same run: the program
//! `zerofleet-bench`, which `zerofleet bench` runs.
//!
//! [`Bench`] is the command line. Each benchmark is a module with options and a function `measure`: [`kernel`],
//! [`selfplay`], [`search`], [`replay`], [`inference`], [`hardware`], [`phases`], [`learner`] and [`fleet`]. All
//! benchmarks write one [`report::Report`]; [`Turns`] sets the number and duration of the turns of each measurement.
//! Start with [`Bench`].

mod dimensions;
pub mod fleet;
pub mod hardware;
pub mod inference;
pub mod kernel;
pub mod learner;
mod machine;
mod network;
pub mod output;
mod own_process;
mod page;
pub mod phases;
mod plot;
pub mod publisher;
mod python;
pub mod replay;
pub mod report;
mod script;
pub mod search;
pub mod selfplay;
mod series;
mod server_process;
mod threads;
mod training_run;
mod tree_player;
mod turns;
mod units;
mod usage;

use std::io::Write;

pub use turns::{Turn, Turns};

use self::selfplay::ablation;
use output::Destination;
use report::{Report, SoFar};
use turns::ascending;

/// Benchmarks the components of zerofleet.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "zerofleet-bench", bin_name = "zerofleet bench", version)]
pub struct Bench {
    #[command(subcommand)]
    part: Part,
    #[command(flatten)]
    destination: Destination,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Part {
    /// Replay server: durable inserts, samples and restart time.
    ///
    /// With `--rates`, measures the connections and inserts of as many actors.
    Replay(self::replay::Args),
    /// Inference server over loopback, relative to the evaluator alone.
    Inference(self::inference::Args),
    /// Self-play speed relative to the evaluator or a simulated accelerator.
    Selfplay(Box<self::selfplay::Args>),
    /// CPU kernel compared with libtorch, OpenVINO and onnxruntime.
    ///
    /// Speeds are also reported as a share of the peak rate of the instructions.
    Kernel(kernel::Args),
    /// Search tree without a network: evaluations are constant.
    Search(self::search::Args),
    /// Matrix products, vector operations and networks on every device.
    ///
    /// Measures every precision, and recommends a device, precision and batch size. With `--compare` and no file, lists
    /// the times of the CPU and of the accelerator by batch, and the batch from which on the accelerator is faster.
    Hardware(hardware::Args),
    /// A real training run: time by phase, bottleneck, costs and devices.
    ///
    /// Costs are extrapolated to a longer run. `--placement` lists the device of each kind of data, several `--actors`
    /// compare the inserts of fleets, and `--full-replay` measures a learner that never lacks samples.
    Phases(phases::Args),
    /// Delivery of weights to a thousand simulated actors in one process.
    Fleet(self::fleet::Args),
    /// Serves weights; started by `fleet` in a separate process.
    #[command(hide = true)]
    Publisher(self::publisher::PublisherArgs),
    /// Training steps on the CPU with own kernels, libtorch and PyTorch.
    ///
    /// Also measures batch sizes.
    Learner(Box<self::learner::Args>),
}

impl Bench {
    /// Runs the benchmark, and prints and writes the report.
    ///
    /// # Errors
    /// The benchmark fails, an earlier report is invalid, or a directory cannot be written to.
    pub fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let compares_devices = matches!(self.destination.compare, Some(None));
        let (name, measure): (_, Measure) = match self.part {
            Part::Hardware(args) if compares_devices => {
                ("comparison", Box::new(move |so_far| hardware::compare(&args, so_far)))
            }
            _ if compares_devices => {
                anyhow::bail!("--compare needs the FILE of an earlier report, except in `hardware`")
            }
            Part::Replay(args) => ("replay", Box::new(move |_| self::replay::measure(&args))),
            Part::Inference(args) => ("inference", Box::new(move |_| self::inference::measure(&args))),
            Part::Selfplay(args) if args.ablate => ("ablation", Box::new(move |_| ablation::in_processes(&args))),
            Part::Selfplay(args) => ("selfplay", Box::new(move |_| self::selfplay::measure(&args))),
            Part::Kernel(args) => ("kernel", Box::new(move |so_far| kernel::measure(&args, so_far))),
            Part::Search(args) => ("search", Box::new(move |_| self::search::measure(&args))),
            Part::Hardware(args) => ("hardware", Box::new(move |so_far| hardware::measure(&args, so_far))),
            Part::Phases(args) => ("phases", Box::new(move |_| phases::measure(&args))),
            Part::Fleet(args) => ("fleet", Box::new(move |_| self::fleet::measure(&args))),
            Part::Publisher(args) => return self::publisher::run(&args, out),
            Part::Learner(args) => ("learner", Box::new(move |so_far| self::learner::measure(&args, so_far))),
        };
        self.destination.run(name, out, measure)
    }
}

/// A measurement that passes unfinished reports to the argument.
type Measure = Box<dyn FnOnce(SoFar<'_>) -> anyhow::Result<Report>>;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::Parser;

    mod documented {
        include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/src/documented_commands.rs"));
    }

    #[test]
    fn every_documented_benchmark_parses() {
        let commands = documented::of("bench");
        assert!(commands.len() > 10, "{} commands", commands.len());
        let is_start = |words: &[String]| words.iter().any(|word| word == "--start");
        assert!(commands.iter().any(|(_, words)| is_start(words)), "no page has `zerofleet tune batch --start FILE`");
        for (page, words) in commands {
            let line = ["zerofleet-bench"].into_iter().chain(words.iter().map(String::as_str));
            let error = super::Bench::try_parse_from(line).err().map(|error| error.to_string());
            assert_eq!(error, None, "{page}: {}", words.join(" "));
        }
    }

    #[derive(clap::Parser)]
    struct Line<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }

    /// Runs a benchmark with options from a command line.
    pub(super) fn run(benchmark: &str, options: &str, out: &mut impl Write) -> anyhow::Result<()> {
        let words = ["zerofleet-bench", benchmark].into_iter().chain(options.split_whitespace());
        super::Bench::try_parse_from(words)?.run(out)
    }

    /// Parses options from a command line.
    pub(super) fn args<A: clap::Args>(line: &str) -> A {
        parsed(line.split_whitespace()).unwrap()
    }

    /// Parses options that may be rejected.
    pub(super) fn parsed<'a, A: clap::Args>(options: impl IntoIterator<Item = &'a str>) -> Result<A, clap::Error> {
        Line::try_parse_from(["bench"].into_iter().chain(options)).map(|line| line.args)
    }
}
