//! The files of a checkpoint, the same for every backend.

use network::Reader;

use crate::{Error, Layout, MixedPrecision, Moment, MomentFormat, Numbers, Optimiser, layout};

/// Files of a checkpoint, as pairs of name and contents.
pub type Files = Vec<(String, Vec<u8>)>;

/// Weights as trained.
const NETWORK_FILE: &str = "network.safetensors";
/// Averaged weights.
const AVERAGE_FILE: &str = "average.safetensors";
/// Moments of the optimiser, step and progress.
const OPTIMISER_FILE: &str = "optimiser.safetensors";

/// Steps before the average became equally weighted; absent while the average is exponential.
const AVERAGED_SINCE: &str = "averaged_since";

/// Serialises the tensors of a layout as safetensors, convolutions as `[out, in, height, width]`. Equal numbers give
/// equal bytes.
///
/// # Errors
/// [`Error::Network`] if two tensors have the same name.
pub fn write(layout: &Layout, parameters: &[f32], statistics: &[f32]) -> Result<Vec<u8>, Error> {
    let entries = layout::file_entries("", &layout.parameters, parameters);
    Ok(network::write(entries.chain(layout::file_entries("", &layout.statistics, statistics)))?)
}

/// Reads a file that [`write()`] wrote.
///
/// # Errors
/// Fails unless the file holds exactly the tensors of the layout, finite and of the right shape; the error names the
/// tensor.
pub fn read(layout: &Layout, bytes: &[u8]) -> Result<Numbers, Error> {
    let mut reader = Reader::new(bytes)?;
    let parameters = layout::flat(&mut reader, "", &layout.parameters)?;
    let statistics = layout::flat(&mut reader, "", &layout.statistics)?;
    reader.finish()?;
    Ok(Numbers { parameters, statistics })
}

/// The whole state of a training: a restored trainer continues as if it had not stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The weights as trained.
    pub network: Numbers,
    /// The averaged weights.
    pub average: Numbers,
    /// Moments of the optimiser, `[P]` each. Files hold them as float32 whatever the storage format, so that a
    /// training resumes in any format, and bit-identically in the same one.
    pub moments: Vec<Moment>,
    /// Number of applied steps.
    pub step: u64,
    /// Progress as set from outside.
    pub progress: f64,
    /// Steps before the equally weighted average started; `None` while the average is exponential.
    pub averaged_since: Option<u64>,
    /// Loss scale and layers in float32.
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

    /// Reads the files of a checkpoint, with moments in `format`; ignores other files.
    ///
    /// # Errors
    /// Fails for missing files, and for contents that do not match the layout or the optimiser.
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

/// Serialises the averaged weights alone.
///
/// # Errors
/// The same as [`write()`].
pub fn average_file(layout: &Layout, average: &Numbers) -> Result<Files, Error> {
    Ok(vec![(AVERAGE_FILE.to_owned(), write(layout, &average.parameters, &average.statistics)?)])
}
