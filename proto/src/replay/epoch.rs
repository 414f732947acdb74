/// Returns the next epoch of an actor: above `last`, the one in its file, and above `highest`, the highest that the
/// server has stored of it. Without a file it begins at `first`, the time in milliseconds since 1970. `None` if there
/// is no higher one.
///
/// `gap` is random. A server with a higher epoch than the actor shows that the actor's file was lost or is an old copy.
/// Trajectories of epochs that were lost with it may still be on their way, and the first epoch above `highest` may be
/// one of these: the server would store the old trajectory, and take a new one for its duplicate.
#[must_use]
pub fn next_epoch(last: Option<u64>, highest: u64, first: u64, gap: u32) -> Option<u64> {
    let next = last.and_then(|last| last.checked_add(1)).unwrap_or(first);
    if next > highest {
        return Some(next);
    }
    let above = highest.checked_add(1)?;
    Some(above.checked_add(gap.into()).unwrap_or(above))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: u64 = 1_700_000_000_000;

    #[test]
    fn epochs_count_up_from_the_file_and_begin_at_the_time_without_one() {
        assert_eq!(next_epoch(Some(7), 0, TIME, 9), Some(8));
        assert_eq!(next_epoch(Some(7), 7, TIME, 9), Some(8));
        assert_eq!(next_epoch(None, TIME - 1, TIME, 9), Some(TIME));
        assert_eq!(next_epoch(Some(u64::MAX), 3, TIME, 9), Some(TIME), "the file is damaged");
    }

    /// An actor sends under 16, loses its file and begins below 15, the highest that the server has stored by then: its
    /// next epoch must not be 16.
    #[test]
    fn an_epoch_above_those_of_the_server_is_none_that_may_be_on_its_way() {
        assert_eq!(next_epoch(None, TIME + 15, TIME, 9), Some(TIME + 25));
        assert_eq!(next_epoch(Some(7), 15, TIME, 9), Some(25));
    }

    #[test]
    fn no_epoch_is_above_the_highest_number() {
        assert_eq!(next_epoch(None, u64::MAX, TIME, 9), None);
        assert_eq!(next_epoch(None, u64::MAX - 1, TIME, 9), Some(u64::MAX));
    }
}
