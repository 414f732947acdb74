use super::*;

#[test]
fn an_arena_that_is_given_up_does_not_end_the_training() {
    assert_eq!(without(Role::Arena, "arena is gone").unwrap(), "arena is gone; training goes on unmeasured");
    for role in [Role::Actor, Role::Replay, Role::Learner] {
        assert_eq!(without(role, "it is gone").unwrap_err().to_string(), "it is gone");
    }
}
