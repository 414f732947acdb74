//! A CSV file of results, to which every run appends.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::backend::Backend;
use super::case::Case;
use super::live;
use super::measured::{Measured, Outcome};
use crate::{Turns, machine, training_run};

/// First line. No field holds a comma, so that none needs quotes.
const HEADING: &str = "network,batch,precision,threads,backend,positions_per_second_median,positions_per_second_fastest,\
                       turns,seconds,cpu,note";
/// Number of leading fields that identify a row.
const KEY: usize = 5;
/// Index of the field with the CPU.
const CPU: usize = 9;
/// Backend name of a learner with a replay server.
const LIVE: &str = "live";

/// A CSV file of results.
#[derive(Debug)]
pub(super) struct Results {
    path: PathBuf,
    cpu: String,
    /// Leading fields of the rows with a speed on this CPU.
    rows: BTreeSet<String>,
}

impl Results {
    /// Reads the file; creates it if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read or written, or has another heading.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("read --csv {}", path.display()))?,
        };
        let mut lines = text.lines();
        ensure!(
            lines.next().is_none_or(|line| line == HEADING),
            "--csv {} is not a file of this benchmark: the first line is not `{HEADING}`",
            path.display()
        );
        let results = Self { path: path.to_owned(), cpu: field(&machine::cpu_model()), rows: BTreeSet::new() };
        if text.is_empty() {
            results.write(HEADING)?;
        }
        let of_this_cpu = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            let is_measured = fields.get(CPU) == Some(&results.cpu.as_str()) && !fields[KEY].is_empty();
            is_measured.then(|| fields[..KEY].join(","))
        };
        let rows = lines.filter_map(of_this_cpu).collect();
        Ok(Self { rows, ..results })
    }

    /// Returns true if the file has a speed on this CPU for every given backend.
    pub(super) fn has(&self, case: &Case, backends: &[Backend], live: bool) -> bool {
        let live = (live && live::is_possible(case)).then(|| LIVE.to_owned());
        let mut names = backends.iter().map(ToString::to_string).chain(live);
        names.all(|backend| self.rows.contains(&key(case, &backend)))
    }

    /// Appends the rows of a case.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn append(&mut self, measured: &Measured, Turns { repeats, seconds, .. }: Turns) -> anyhow::Result<()> {
        let Measured { case, outcomes, live } = measured;
        let mut rows: Vec<String> = Vec::new();
        for (backend, Outcome { median, fastest, note }) in outcomes {
            let [median, fastest] = [median, fastest].map(|speed| speed.map_or(String::new(), |x| format!("{x:.1}")));
            let (key, note) = (key(case, &backend.to_string()), field(note));
            rows.push(format!("{key},{median},{fastest},{repeats},{seconds},{},{note}", self.cpu));
        }
        if let Some(Ok(training_run::Measured { window, .. })) = live {
            let (speed, seconds) = (format!("{:.1}", live::speed(window)), window.seconds);
            let (key, note) = (key(case, LIVE), field(&live::backend(window)));
            rows.push(format!("{key},{speed},{speed},1,{seconds:.1},{},{note}", self.cpu));
        }
        rows.iter().try_for_each(|row| self.write(row))?;
        Ok(())
    }

    fn write(&self, line: &str) -> anyhow::Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        file.and_then(|mut file| writeln!(file, "{line}"))
            .with_context(|| format!("write --csv {}", self.path.display()))
    }
}

/// Returns the leading fields of a row.
fn key(Case { network, batch, precision, threads }: &Case, backend: &str) -> String {
    format!("{network},{batch},{precision},{threads},{backend}")
}

/// Returns text as a field, without commas, quotes or line breaks.
fn field(text: &str) -> String {
    text.replace([',', '"', '\n', '\r'], ";")
}

#[cfg(test)]
mod tests {
    use network_torch::Precision;

    use super::*;
    use crate::network::NetworkSize;
    use crate::tests::args;

    #[derive(Debug, clap::Args)]
    struct Options {
        #[command(flatten)]
        turns: Turns,
    }

    fn case(threads: usize) -> Case {
        let network = NetworkSize { blocks: 1, channels: 8, height: 3, width: 3 };
        Case { network, batch: 4, precision: Precision::F32, threads }
    }

    fn append(path: &Path, threads: usize) {
        let note = "PyTorch 1, channels last".into();
        let measured = Outcome { median: Some(10.0), fastest: Some(12.5), note };
        let not_measured = Outcome { median: None, fastest: None, note: "no \"compiler\",\nnone".into() };
        let outcomes = vec![(Backend::Pytorch, measured), (Backend::PytorchCompile, not_measured)];
        let Options { turns } = args("--repeats 2 --seconds 0.5");
        let measured = Measured { case: case(threads), outcomes, live: None };
        Results::open(path).unwrap().append(&measured, turns).unwrap();
    }

    #[test]
    fn rows_are_appended_and_those_of_this_cpu_are_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        append(&path, 1);
        append(&path, 2);
        let text = fs::read_to_string(&path).unwrap();
        let cpu = field(&machine::cpu_model());
        let expected = format!("1x8@3x3,4,f32,1,pytorch,10.0,12.5,2,0.5,{cpu},PyTorch 1; channels last");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[1]), (5, HEADING, expected.as_str()), "{text}");
        assert!(lines.iter().all(|line| line.matches(',').count() == HEADING.matches(',').count()), "{text}");

        let both = [Backend::Pytorch, Backend::PytorchCompile];
        let has = |case: &Case, backends: &[Backend]| Results::open(&path).unwrap().has(case, backends, true);
        assert!(has(&case(1), &both[..1]) && has(&case(2), &both[..1]) && !has(&case(3), &both[..1]));
        assert!(!has(&case(1), &both), "one was not measured");
        assert!(!has(&case(1), &[Backend::Pytorch, Backend::Kernels]));
        fs::write(&path, text.replace(&cpu, "another CPU")).unwrap();
        assert!(!has(&case(1), &both[..1]));
    }

    #[test]
    fn another_file_is_refused_and_left_as_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "solved positions\n1,2\n").unwrap();
        let error = Results::open(file.path()).unwrap_err().to_string();
        assert!(error.contains("--csv") && error.contains("not a file of this benchmark"), "{error}");
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "solved positions\n1,2\n");
    }
}
