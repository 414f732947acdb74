use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;

#[test]
fn what_a_batch_left_is_found_by_the_next_one() {
    let slots = Slots::new(1);
    let mut slot = slots.take();
    assert_eq!(slot.reclaim(), None);
    slot.keep("buffers");
    drop(slot);
    assert_eq!(slots.take().reclaim(), Some("buffers"));
    // Reclaimed and not kept, as after a failure.
    assert_eq!(slots.take().reclaim(), None);
}

#[test]
fn never_more_are_taken_than_there_are() {
    let slots = &Slots::<u32>::new(3);
    let (under_way, most) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut slot = slots.take();
                    let number = slot.reclaim().unwrap_or_default();
                    most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    slot.keep(number + 1);
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}");
    // Nothing that was kept is lost or doubled.
    let mut held: Vec<_> = (0..3).map(|_| slots.take()).collect();
    assert_eq!(held.iter_mut().filter_map(Slot::reclaim).sum::<u32>(), 8 * 200);
}

#[test]
fn whoever_waits_goes_on_when_there_may_be_more() {
    let slots = &Slots::<()>::new(1);
    let _first = slots.take();
    thread::scope(|scope| {
        let second = scope.spawn(|| drop(slots.take()));
        slots.set_depth(2);
        second.join().unwrap();
    });
    assert_eq!(slots.depth(), 2);
}

#[test]
fn fewer_slots_hold_less_once_what_is_under_way_is_done() {
    let slots = Slots::new(2);
    let mut both = [slots.take(), slots.take()];
    both.iter_mut().for_each(|slot| slot.keep(()));
    slots.set_depth(1);
    drop(both);
    assert_eq!(slots.take().reclaim(), Some(()));
    slots.set_depth(2);
    let mut both = [slots.take(), slots.take()];
    assert_eq!(both.iter_mut().filter_map(Slot::reclaim).count(), 0);
}

#[test]
fn there_is_always_one() {
    assert_eq!(Slots::<()>::new(0).depth(), 1);
}
