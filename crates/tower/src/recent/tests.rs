use game::Action;

use super::*;

const SHAPE: ObservationShape = ObservationShape { planes: 1, height: 1, width: 2 };

/// Positions numbered from `first` on.
fn batch(first: usize, positions: usize) -> Batch {
    let mut batch = Batch::new(SHAPE);
    for number in first..first + positions {
        batch.push(&[Action(1)], |planes| planes.copy_from_slice(&[number as f32, 0.5]));
    }
    batch
}

#[test]
fn a_sample_is_every_sixteenth_position_and_the_last_complete_one() {
    let recent = Recent::default();
    let mut next = 0;
    let mut show = |positions: usize| {
        recent.show(&batch(next, positions));
        next += positions;
    };
    for size in (1..=63).cycle().take(120) {
        show(size);
    }
    // 63 * 64 / 2 + 57 * 58 / 2 = 3,669 so far: 230 taken.
    assert!(recent.sample(SHAPE).is_none());
    show(SAMPLE * STRIDE);
    let sample = recent.sample(SHAPE).unwrap();
    let numbers: Vec<f32> = (0..sample.len()).map(|index| sample.observation(index)[0]).collect();
    let wanted: Vec<f32> = (0..SAMPLE).map(|index| (index * STRIDE) as f32).collect();
    assert_eq!(numbers, wanted);
    assert_eq!(sample.legal(7), [Action(1)]);
    show(SAMPLE * STRIDE);
    let later = recent.sample(SHAPE).unwrap();
    assert_eq!(later.observation(0)[0], (SAMPLE * STRIDE) as f32);
}

#[test]
fn positions_of_another_shape_begin_anew() {
    let recent = Recent::default();
    recent.show(&batch(0, SAMPLE * STRIDE / 2));
    let other = ObservationShape { planes: 1, height: 2, width: 2 };
    let mut wider = Batch::new(other);
    (0..SAMPLE * STRIDE).for_each(|_| wider.push(&[Action(0)], |planes| planes.fill(0.0)));
    recent.show(&wider);
    assert!(recent.sample(SHAPE).is_none());
    assert_eq!(recent.sample(other).map(|sample| sample.len()), Some(SAMPLE));
}
