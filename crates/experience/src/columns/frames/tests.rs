use proptest::prelude::*;

use super::super::tests::episode;
use super::*;
use crate::{Episode, Limits, Observations, Segment, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use weights::WeightsVersion;

const ID: TrajectoryId = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };

/// An episode with stored observations, and the observations that must be read back.
#[derive(Debug, Clone)]
struct Recorded {
    layout: ObservationLayout,
    plies: usize,
    /// One for each step, and the final one.
    observations: Vec<Vec<f32>>,
}

impl Recorded {
    /// Stacks the frames of an episode of `frames.len() - stack` plies.
    fn of(layout: ObservationLayout, frames: &[Vec<f32>]) -> Self {
        let observations: Vec<_> = frames.windows(layout.stack).map(<[_]>::concat).collect();
        Self { layout, plies: observations.len() - 1, observations }
    }

    fn trajectory(&self, episode: Episode) -> Result<Trajectory, Invalid> {
        let mut recorder = Observations::new(self.layout)?;
        self.observations.iter().try_for_each(|observation| recorder.push(observation))?;
        Trajectory::of_recorded(ID, "any", &vec![step(); self.plies], episode, recorder)
    }
}

fn step() -> Step {
    Step { action: Action(0), reward: 1.0, kind: StepKind::Fast { value: 0.5 }, weights_version: WeightsVersion(1) }
}

/// Generates numbers that every element type holds exactly.
fn recorded() -> impl Strategy<Value = Recorded> {
    let layout = (prop::sample::select(Element::ALL.to_vec()), 1..6_usize, 1..5_usize)
        .prop_map(|(element, frame_values, stack)| ObservationLayout { element, frame_values, stack });
    (layout, 1..70_usize, any::<bool>()).prop_flat_map(|(layout, plies, compressible)| {
        let number = match layout.element {
            Element::U8 => (0..=255_u8).prop_map(|byte| f32::from(byte) / 255.0).boxed(),
            Element::Bf16 => (-127..=127_i8).prop_map(f32::from).boxed(),
            Element::F32 => prop::num::f32::NORMAL.boxed(),
        };
        let number = if compressible { Just(1.0).boxed() } else { number };
        let frame = prop::collection::vec(number, layout.frame_values);
        prop::collection::vec(frame, plies + layout.stack).prop_map(move |frames| Recorded::of(layout, &frames))
    })
}

fn observation(segment: &Segment, k: usize, values: usize) -> Option<Vec<f32>> {
    let mut out = vec![f32::NAN; values];
    segment.observation(k, &mut out).map(|()| out)
}

proptest! {
    #[test]
    fn every_segment_has_the_observations_of_its_steps_and_the_final_one_at_the_end(
        recorded in recorded(),
        episode in episode(),
    ) {
        let (plies, values) = (recorded.plies, recorded.layout.observation_values());
        let trajectory = recorded.trajectory(episode).unwrap();
        let trajectory = Trajectory::parse(ID, trajectory.columns(), Limits::NONE).unwrap();
        prop_assert!(trajectory.has_observations());
        for (ply, unroll_steps) in (0..plies).flat_map(|ply| [0, 1, 17, usize::MAX].map(|unroll| (ply, unroll))) {
            let cut = trajectory.segment(ply, unroll_steps).unwrap();
            let parsed = Segment::parse(ID, cut.columns().clone(), Limits::NONE).unwrap();
            prop_assert_eq!(&parsed, &cut);
            prop_assert_eq!(parsed.steps().count(), parsed.len());
            let count = cut.len() + usize::from(cut.reaches_end());
            for segment in [cut, parsed] {
                prop_assert_eq!(segment.observation_layout(), Some(recorded.layout));
                for k in 0..count {
                    prop_assert_eq!(observation(&segment, k, values), Some(recorded.observations[ply + k].clone()));
                }
                prop_assert_eq!(observation(&segment, count, values), None);
                prop_assert_eq!(observation(&segment, 0, values + 1), None);
            }
        }
    }

    /// Damaged blocks never panic, whether they are refused or read as other numbers.
    #[test]
    fn changed_observations_are_refused_or_read(
        recorded in recorded(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
    ) {
        let trajectory = recorded.trajectory(Episode::of(Outcome::Finished)).unwrap();
        let limits = Limits { steps_max: 128, actions: 1 };
        let read = |mut bytes: Vec<u8>| {
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes
        };
        if let Ok(trajectory) = Trajectory::parse(ID, &read(trajectory.columns().to_vec()), limits)
            && let Some(layout) = trajectory.segment(0, 0).and_then(|segment| segment.observation_layout())
        {
            for ply in 0..trajectory.plies() {
                let segment = trajectory.segment(ply, 0).unwrap();
                let numbers = observation(&segment, 0, layout.observation_values()).unwrap();
                prop_assert!(numbers.iter().all(|number| number.is_finite()));
            }
        }
        let part = trajectory.segment(recorded.plies / 2, 3).unwrap();
        if let Ok(segment) = Segment::parse(ID, read(part.columns().to_vec()).into(), limits)
            && let Some(layout) = segment.observation_layout()
        {
            let numbers = observation(&segment, 0, layout.observation_values()).unwrap();
            prop_assert!(numbers.iter().all(|number| number.is_finite()));
        }
    }
}

/// Generates bytes that do not compress, from a linear congruential generator (Knuth).
fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    std::iter::successors(next(&seed), next).map(|state| (state >> 56) as u8)
}

/// Returns a trajectory with frames of noise, as images.
fn images(plies: usize, layout: ObservationLayout) -> Trajectory {
    let image = |at| noise(at).take(layout.frame_values).map(|byte| f32::from(byte) / 255.0).collect();
    let frames: Vec<Vec<f32>> = (0..(plies + layout.stack) as u64).map(image).collect();
    Recorded::of(layout, &frames).trajectory(Episode::of(Outcome::Finished)).unwrap()
}

const IMAGES: ObservationLayout = ObservationLayout { element: Element::U8, frame_values: 84 * 84, stack: 4 };

#[test]
fn a_stack_of_images_costs_one_image_a_step_even_if_it_does_not_compress() {
    // A block of 16 frames has three bytes for the size, and a step some bytes in other columns.
    let bytes = images(320, IMAGES).bytes() - images(160, IMAGES).bytes();
    assert!((160 * 84 * 84..160 * (84 * 84 + 12)).contains(&bytes), "{bytes}");
}

#[test]
fn an_image_that_does_not_change_costs_little() {
    let still = |plies: usize| {
        let image: Vec<f32> = noise(1).take(IMAGES.frame_values).map(|byte| f32::from(byte) / 255.0).collect();
        Recorded::of(IMAGES, &vec![image; plies + 4]).trajectory(Episode::of(Outcome::Finished)).unwrap().bytes()
    };
    // One image for each block of 16.
    assert!(still(320) - still(160) < 160 * (84 * 84 / 15), "{} bytes", still(320) - still(160));
}

#[test]
fn a_segment_has_few_frames_that_it_does_not_need() {
    let trajectory = images(320, IMAGES);
    for ply in 0..160 {
        // K + 1 steps with K = 5, and the three frames before the first step.
        let (needed, bytes) = (6 + 3, trajectory.segment(ply, 5).unwrap().columns().len());
        assert!(bytes < (needed + 2 * 15) * 84 * 84, "{bytes} bytes at ply {ply}");
    }
}

fn refused(result: Result<impl Sized, Invalid>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn a_recorder_refuses_what_it_cannot_store_and_goes_on() {
    let layout = ObservationLayout { element: Element::U8, frame_values: 2, stack: 2 };
    let mut recorder = Observations::new(layout).unwrap();
    assert_eq!(refused(recorder.push(&[0.0; 3])), "observations[0]: has 3 values, expected 4");
    assert_eq!(refused(recorder.push(&[0.0, f32::NAN, 0.0, 0.0])), "observations[0]: value 1: NaN is not in [0, 1]");
    recorder.push(&[0.0, 0.2, 0.4, 0.6]).unwrap();
    let skipped = refused(recorder.push(&[0.4, 0.8, 0.0, 0.0]));
    assert_eq!(skipped, "observations[1]: does not repeat the 1 latest frames of the previous observation");
    recorder.push(&[0.4, 0.6, 0.0, 1.0]).unwrap();
    assert_eq!(recorder.len(), 2);
    let trajectory = Trajectory::of_recorded(ID, "any", &[step()], Episode::of(Outcome::Finished), recorder).unwrap();
    let segment = trajectory.segment(0, 0).unwrap();
    assert_eq!(observation(&segment, 1, 4).unwrap(), [0.4, 0.6, 0.0, 1.0]);
}

#[test]
fn a_trajectory_has_one_observation_for_each_step_and_the_final_one() {
    let layout = ObservationLayout { element: Element::F32, frame_values: 1, stack: 1 };
    let mut short = Recorded::of(layout, &vec![vec![1.0]; 3]);
    short.plies = 3;
    let expected = "observations: are 3, expected one for each of 3 steps and a final observation";
    assert_eq!(refused(short.trajectory(Episode::of(Outcome::Finished))), expected);
}

#[test]
fn sizes_out_of_range_are_refused() {
    let of =
        |element, frame_values, stack| refused(Observations::new(ObservationLayout { element, frame_values, stack }));
    assert_eq!(of(Element::F32, 0, 1), "observations: have 0 values per frame, expected 1 to 262144");
    assert_eq!(of(Element::F32, 262_145, 1), "observations: have 262145 values per frame, expected 1 to 262144");
    assert_eq!(of(Element::U8, 9, 0), "observations: stack 0 frames, expected 1 to 64");
    assert_eq!(of(Element::U8, 9, 65), "observations: stack 65 frames, expected 1 to 64");
}

/// A column for one ply, with the frames 1 and 2 of one number each, and the span.
fn column() -> (Vec<u8>, Span) {
    (vec![1, 1, 1, 2, 1, 2], Span { plies: 1, ply: 0, steps: 1 })
}

#[test]
fn the_layout_is_the_documented_one() {
    let layout = ObservationLayout { element: Element::U8, frame_values: 1, stack: 1 };
    let mut builder = FramesBuilder::new(layout);
    builder.push(&[1]);
    builder.push(&[2]);
    let (expected, span) = column();
    assert_eq!(builder.finish(), expected);
    assert_eq!(Frames::parse(&expected, span).unwrap().decode().unwrap(), [1, 2]);
}

#[test]
fn every_malformed_column_is_refused_with_the_defect() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(Change, &str); 12] = [
        (|b| b.clear(), "are truncated"),
        (|b| b[0] = 0, "have an unknown element type"),
        (|b| b[0] = 4, "have an unknown element type"),
        (|b| b.truncate(2), "are truncated"),
        (|b| b[1] = 0, "stack 0 frames, expected 1 to 64"),
        (|b| b[2] = 0, "have 0 values per frame, expected 1 to 1048576"),
        (|b| b.truncate(3), "lack the size of a block"),
        (|b| b[3] = 0, "have a block of 0 bytes, expected 1 to 2"),
        (|b| b[3] = 3, "have a block of 3 bytes, expected 1 to 2"),
        (|b| b.push(1), "have 3 bytes of blocks, expected 2"),
        (|b| drop(b.splice(3.., [1, 1])), "have an unreadable block: Src size is incorrect"),
        (|b| drop(b.splice(.., [3, 1, 1, 8, 0, 0, 0, 0, 0x80, 0, 0x7f, 0])), "have a number that is not finite"),
    ];
    for (change, expected) in cases {
        let (mut bytes, span) = column();
        change(&mut bytes);
        let read = Frames::parse(&bytes, span).and_then(|frames| frames.decode());
        assert_eq!(refused(read), format!("observations: {expected}"));
        let read = Frames::parse(&bytes, span).and_then(|frames| frames.check());
        assert_eq!(refused(read), format!("observations: {expected}"));
    }
}

/// Zstd compresses zeros ten thousand times, so that small columns may claim any amount of memory.
#[test]
fn frames_of_more_memory_than_an_episode_may_have_are_refused_before_they_are_decompressed() {
    let mut bytes = vec![1, 1];
    put_number(&mut bytes, 1 << 20);
    let span = |plies| Span { plies, ply: 0, steps: plies };
    let over = "observations: have 513 frames of 1048576 bytes, the limit is 536870912 bytes";
    assert_eq!(refused(Frames::parse(&bytes, span(512))), over);
    assert_eq!(refused(Frames::parse(&bytes, span(511))), "observations: lack the size of a block");
}

#[test]
fn a_block_that_decompresses_to_more_or_less_than_its_frames_is_refused() {
    for bytes in [1, 1000 * 16 - 1, 1000 * 16 + 1, 1 << 20] {
        let block = zstd::bulk::compress(&vec![0; bytes], 3).unwrap();
        let mut column = vec![1, 1];
        put_number(&mut column, 1000);
        put_number(&mut column, block.len() as u64);
        column.extend(&block);
        let read = Frames::parse(&column, Span { plies: 15, ply: 0, steps: 15 }).unwrap().decode();
        let reason = refused(read);
        assert!(reason.starts_with("observations: have an unreadable block: "), "{reason}");
    }
}
