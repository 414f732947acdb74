//! The files of a checkpoint, which are the same for every backend.

use network::Reader;

use crate::{Error, Layout, MixedPrecision, Moment, MomentFormat, Numbers, Optimiser, layout};

/// Files of a checkpoint, as pairs of name and contents.
pub type Files = Vec<(String, Vec<u8>)>;

/// File with the current weights.
const NETWORK_FILE: &str = "network.safetensors";
/// File with the averaged weights.
const AVERAGE_FILE: &str = "average.safetensors";
/// File with the optimiser's moments, the step count and the progress.
const OPTIMISER_FILE: &str = "optimiser.safetensors";

/// Name of the step count at which the equally weighted average started; absent while the average is exponential.
const AVERAGED_SINCE: &str = "averaged_since";

/// Serialises the tensors of a layout as safetensors, with convolutions as `[out, in, height, width]`. Equal values
/// give equal bytes.
///
/// # Errors
/// [`Error::Network`] if two tensors have the same name.
pub fn write(layout: &Layout, parameters: &[f32], statistics: &[f32]) -> Result<Vec<u8>, Error> {
    let entries = layout::file_entries("", &layout.parameters, parameters);
    Ok(network::write(entries.chain(layout::file_entries("", &layout.statistics, statistics)))?)
}

/// Reads parameters and statistics from a file written by [`write()`].
///
/// # Errors
/// The file does not contain exactly the tensors of the layout, a shape is wrong, or a value is not finite. The error
/// names the tensor.
pub fn read(layout: &Layout, bytes: &[u8]) -> Result<Numbers, Error> {
    let mut reader = Reader::new(bytes)?;
    let parameters = layout::flat(&mut reader, "", &layout.parameters)?;
    let statistics = layout::flat(&mut reader, "", &layout.statistics)?;
    reader.finish()?;
    Ok(Numbers { parameters, statistics })
}

/// Returns the text `name` in the metadata of a file of weights; `None` if the file has no such text.
///
/// # Errors
/// [`Error::Network`] if the bytes are not a safetensors file.
pub fn note(bytes: &[u8], name: &str) -> Result<Option<String>, Error> {
    Ok(network::note(bytes, name)?)
}

/// The complete state of a training. A restored trainer continues as if it had not stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The current weights and running statistics.
    pub network: Numbers,
    /// The averaged weights and running statistics.
    pub average: Numbers,
    /// Moments of the optimiser, `[P]` each. Files contain moments as float32 in every storage format. Training can
    /// therefore resume in any format; in the same format, it resumes bit-identically.
    pub moments: Vec<Moment>,
    /// Number of applied training steps.
    pub step: u64,
    /// Schedule progress as set from outside, from 0 to 1.
    pub progress: f64,
    /// Number of steps before the equally weighted average started; `None` while the average is exponential.
    pub averaged_since: Option<u64>,
    /// Loss scale, and layers that were switched to float32.
    pub mixed: MixedPrecision,
}

impl State {
    /// Serialises the state as the files of a checkpoint.
    ///
    /// # Errors
    /// [`Error::Network`] if two tensors have the same name.
    pub fn files(&self, layout: &Layout, optimiser: Optimiser) -> Result<Files, Error> {
        let mut entries =
            vec![network::Entry::count("step", self.step), network::Entry::real("progress", self.progress)];
        entries.extend(self.averaged_since.map(|since| network::Entry::count(AVERAGED_SINCE, since)));
        entries.extend(self.mixed.entries());
        for (name, moment) in optimiser.moment_names().iter().zip(&self.moments) {
            entries.extend(layout::file_entries(name, &layout.parameters, &moment.to_floats()));
        }
        let numbers = |numbers: &Numbers| write(layout, &numbers.parameters, &numbers.statistics);
        Ok(vec![
            (NETWORK_FILE.to_owned(), numbers(&self.network)?),
            (AVERAGE_FILE.to_owned(), numbers(&self.average)?),
            (OPTIMISER_FILE.to_owned(), network::write(entries)?),
        ])
    }

    /// Reads the state from the files of a checkpoint, with moments in `format`. Other files are ignored.
    ///
    /// # Errors
    /// A file is missing, or does not match the layout or the optimiser.
    pub fn read(
        layout: &Layout,
        optimiser: Optimiser,
        format: MomentFormat,
        files: &[(String, Vec<u8>)],
    ) -> Result<Self, Error> {
        let file = |name: &'static str| {
            let found = files.iter().find(|(file, _)| file == name);
            found.map(|(_, bytes)| bytes.as_slice()).ok_or(Error::MissingFile { name })
        };
        let [network, average] = [NETWORK_FILE, AVERAGE_FILE].map(|name| read(layout, file(name)?));
        let (network, average) = (network?, average?);
        let mut reader = Reader::new(file(OPTIMISER_FILE)?)?;
        let (step, progress) = (reader.count("step")?, reader.real("progress")?);
        let averaged_since = if reader.holds(AVERAGED_SINCE) { Some(reader.count(AVERAGED_SINCE)?) } else { None };
        let mixed = MixedPrecision::read(&mut reader, layout)?;
        let moment = |(name, &kind): (&&str, _)| {
            let numbers = layout::flat(&mut reader, name, &layout.parameters)?;
            Ok::<_, Error>(Moment::of(kind, format, numbers))
        };
        let declared = optimiser.moment_names().iter().zip(optimiser.moment_kinds());
        let moments = declared.map(moment).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(Self { network, average, moments, step, progress, averaged_since, mixed })
    }
}

/// Serialises only the averaged weights, as a checkpoint file.
///
/// # Errors
/// The same as [`write()`].
pub fn average_file(layout: &Layout, average: &Numbers) -> Result<Files, Error> {
    Ok(vec![(AVERAGE_FILE.to_owned(), write(layout, &average.parameters, &average.statistics)?)])
}
