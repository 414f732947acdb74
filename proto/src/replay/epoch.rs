/// Returns the next epoch of an actor: above `last`, from the actor's file, and above `highest`, the highest epoch
/// that the server has stored for the actor. Without a file, epochs start at `first`, the time in milliseconds since
/// 1970. `None` if there is no higher epoch.
///
/// `gap` is random. A higher epoch on the server shows that the actor's file was lost or is an old copy. Trajectories
/// of lost epochs may still be in flight, possibly under the first epoch above `highest`. Under that epoch, the
/// server would store the old trajectory and take a new trajectory for a duplicate.
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

    /// An actor sends under 16, loses the file and starts below 15, the highest epoch stored by the server so far:
    /// the next epoch must not be 16.
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
