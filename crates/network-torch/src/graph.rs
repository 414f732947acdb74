//! Records operations of an accelerator as a graph, which is submitted again by one call.
//!
//! A replay reads and writes the tensors of the recording: callers copy inputs into fixed tensors, and read outputs
//! from fixed tensors. CUDA records nothing that waits for the device, such as a copy to memory that is not pinned.

use tch::{Device, Kind, Tensor};

#[cfg(any(test, feature = "doubles"))]
use crate::stand_in::StandIn;
use crate::{
    Error, Purpose, device, fusing,
    gpu::{Capture, Captured, Restricted},
};

/// Operations on fixed tensors, which return the outputs. Effects on fixed tensors are part of the work.
pub(crate) type Work<'a> = &'a mut dyn FnMut() -> Result<Vec<Tensor>, Error>;

/// Records graphs for one device. Belongs to one thread at a time.
#[derive(Debug)]
pub(crate) enum Recorder {
    /// Graphs of CUDA.
    Cuda(Capture),
    /// Computes on the CPU.
    #[cfg(any(test, feature = "doubles"))]
    StandIn(StandIn),
}

/// Recorded work.
#[derive(Debug)]
pub(crate) struct Graph {
    recorded: Recorded,
    outputs: Vec<Tensor>,
}

#[derive(Debug)]
enum Recorded {
    Cuda(Captured),
    #[cfg(any(test, feature = "doubles"))]
    StandIn(StandIn),
}

impl Recorder {
    /// Creates the recorder of a device, with memory that the graphs share.
    ///
    /// For training, no other thread may allocate memory of the device during a recording, since autograd submits from
    /// a thread of libtorch.
    ///
    /// # Errors
    /// Returns the human-readable reason: the device has no graphs, or the library for them is missing.
    pub(crate) fn of(device: Device, purpose: Purpose) -> Result<Self, String> {
        let Device::Cuda(index) = device else { return Err("only CUDA devices have graphs".to_owned()) };
        device::load_graphs()?;
        let restricted = match purpose {
            Purpose::Inference => Restricted::CapturingThread,
            Purpose::Training => Restricted::AllThreads,
        };
        Capture::new(index, restricted).map(Self::Cuda).map_err(|error| error.to_string())
    }

    /// Computes `work` on the stream of recordings, which chooses kernels and allocates work space that a recording
    /// must not. The computation comes after earlier and before later operations of this thread.
    ///
    /// # Errors
    /// The error of `work`, or of the device.
    pub(crate) fn warmed(&self, work: Work<'_>) -> Result<Vec<Tensor>, Error> {
        match self {
            Self::Cuda(capture) => capture.on_stream(work),
            #[cfg(any(test, feature = "doubles"))]
            Self::StandIn(_) => work(),
        }
    }

    /// Records `work`, which was [`warmed`](Self::warmed). CUDA does not compute it, so that the outputs hold no
    /// numbers before the first replay; effects of the stand-in must be undone.
    ///
    /// # Errors
    /// The error of `work`, or the reason why the operations cannot be recorded. The device stays usable.
    pub(crate) fn record(&self, work: Work<'_>) -> Result<Graph, Error> {
        let (recorded, outputs) = match self {
            Self::Cuda(capture) => {
                let (outputs, captured) = capture.captured(work)?;
                (Recorded::Cuda(captured), outputs)
            }
            #[cfg(any(test, feature = "doubles"))]
            Self::StandIn(stand_in) => (Recorded::StandIn(stand_in.clone()), stand_in.record(work)?),
        };
        Ok(Graph { recorded, outputs })
    }

    /// Records work without effects after two computations, and compares the first replay with them.
    ///
    /// # Errors
    /// Same as [`record`](Self::record), or the reason of [`accept`].
    pub(crate) fn checked(&self, work: Work<'_>) -> Result<Graph, Error> {
        let (first, second) = (self.warmed(work)?, self.warmed(work)?);
        let graph = self.record(work)?;
        graph.replay(work)?;
        accept(&first, &second, &graph.outputs).map_err(Error::Libtorch)?;
        Ok(graph)
    }
}

impl Graph {
    /// Returns the fixed tensors that each replay overwrites. Graphs of one recorder share memory, so that a replay of
    /// another graph may overwrite them too: submit every use of the outputs before the next replay.
    pub(crate) fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// Submits the recorded work after earlier operations of this thread. `work` is the recorded work, which only the
    /// stand-in computes again.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device fails.
    pub(crate) fn replay(&self, work: Work<'_>) -> Result<(), Error> {
        match &self.recorded {
            Recorded::Cuda(captured) => {
                let _ = work;
                captured.replay()
            }
            #[cfg(any(test, feature = "doubles"))]
            Recorded::StandIn(stand_in) => stand_in.replay(work, &self.outputs),
        }
    }
}

/// Compares the outputs of two computations and of a replay from the same state. If the computations have the same
/// bits, the replay must have them too. Some kernels add in any order: if the computations differ, the replay may
/// differ by twice as much. Differences are relative to the largest number of a tensor, and the largest counts.
///
/// # Errors
/// Returns the human-readable reason to compute without the graph.
pub(crate) fn accept(first: &[Tensor], second: &[Tensor], replayed: &[Tensor]) -> Result<(), String> {
    let apart = |other: &[Tensor]| apart(first, other).map_err(|error| error.to_string());
    let (computed, replayed) = (apart(second)?, apart(replayed)?);
    if computed.is_finite() && replayed <= 2.0 * computed {
        return Ok(());
    }
    Err(format!("a replay differs by {replayed:.1e} (relative), two computations by {computed:.1e}"))
}

/// Returns the largest relative difference of two outputs: 0 if they have the same bits, else infinite if a number is
/// not finite.
fn apart(one: &[Tensor], other: &[Tensor]) -> Result<f64, Error> {
    let mut largest = 0.0_f64;
    for (expected, got) in one.iter().zip(other) {
        if !bits(expected)?.f_equal(&bits(got)?)? {
            largest = largest.max(fusing::distance(got, expected)?);
        }
    }
    Ok(largest)
}

/// Views float32 as integers, in which a NaN equals itself.
fn bits(tensor: &Tensor) -> Result<Tensor, Error> {
    Ok(if tensor.f_kind()? == Kind::Float { tensor.f_view_dtype(Kind::Int)? } else { tensor.shallow_clone() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::{stand_in::Fault, tests::networks::numbers};

    /// Doubles a fixed tensor.
    fn doubled(input: &Tensor) -> Result<Vec<Tensor>, Error> {
        Ok(vec![input.f_mul_scalar(2.0)?])
    }

    fn faulty(fault: Fault) -> Recorder {
        Recorder::StandIn(StandIn { fault: Some(fault), ..StandIn::default() })
    }

    #[test]
    fn a_replay_computes_what_the_fixed_tensors_hold_and_overwrites_the_outputs() {
        let stand_in = StandIn::default();
        let recorder = Recorder::StandIn(stand_in.clone());
        let mut input = Tensor::from_slice(&[1.0_f32, 3.0]);
        let graph = recorder.checked(&mut || doubled(&input)).unwrap();
        let outputs = graph.outputs()[0].shallow_clone();
        assert_eq!(numbers(&outputs), [2.0, 6.0]);
        input.copy_(&Tensor::from_slice(&[5.0_f32, 7.0]));
        graph.replay(&mut || doubled(&input)).unwrap();
        assert_eq!(numbers(&outputs), [10.0, 14.0]);
        let counts = [&stand_in.counts.recorded, &stand_in.counts.replayed];
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [1, 2]);
    }

    #[test]
    fn a_recording_holds_no_numbers_before_a_replay() {
        let (recorder, input) = (Recorder::StandIn(StandIn::default()), Tensor::from_slice(&[1.0_f32]));
        let graph = recorder.record(&mut || doubled(&input)).unwrap();
        assert_eq!(numbers(&graph.outputs()[0]), [0.0]);
    }

    #[test]
    fn work_that_cannot_be_recorded_can_still_be_computed() {
        let (recorder, input) = (faulty(Fault::Capture), Tensor::from_slice(&[4.0_f32]));
        let error = recorder.record(&mut || doubled(&input)).unwrap_err().to_string();
        assert!(error.contains("not permitted when stream is capturing"), "{error}");
        assert_eq!(numbers(&recorder.warmed(&mut || doubled(&input)).unwrap()[0]), [8.0]);
    }

    #[test]
    fn a_replay_that_differs_is_refused_with_both_differences() {
        let (recorder, input) = (faulty(Fault::Replay), Tensor::from_slice(&[5.0_f32]));
        let error = recorder.checked(&mut || doubled(&input)).unwrap_err().to_string();
        assert_eq!(error, "libtorch: a replay differs by 1.0e-1 (relative), two computations by 0.0e0");
    }

    #[test]
    fn a_replay_may_differ_by_twice_as_much_as_two_computations_and_not_more() {
        let outputs = |last: f32| [Tensor::from_slice(&[2_i64]), Tensor::from_slice(&[-8.0_f32, last])];
        let accepted = |second, replayed| accept(&outputs(1.0), &outputs(second), &outputs(replayed)).is_ok();
        assert!(accepted(1.0, 1.0) && !accepted(1.0, 1.000_001));
        assert!(accepted(1.25, 1.0) && accepted(1.25, 0.5) && !accepted(1.25, 1.75));
        assert!(!accepted(1.0, -1.0) && accept(&outputs(f32::NAN), &outputs(f32::NAN), &outputs(f32::NAN)).is_ok());
        assert!(!accepted(f32::NAN, 1.0) && !accepted(1.0, f32::NAN) && !accepted(f32::NAN, f32::NAN));
    }

    #[test]
    fn a_device_without_graphs_gives_the_reason() {
        for device in [Device::Cpu, Device::Mps] {
            assert_eq!(Recorder::of(device, Purpose::Inference).unwrap_err(), "only CUDA devices have graphs");
        }
        // No machine has a thousand devices.
        assert!(!Recorder::of(Device::Cuda(1000), Purpose::Training).unwrap_err().is_empty());
    }
}
