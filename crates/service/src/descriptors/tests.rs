use super::*;

#[test]
fn the_limit_is_as_high_as_it_may_be_and_stays_there() {
    let raised = raise_limit();
    assert!(raised.is_some_and(|limit| limit > 0), "{raised:?}");
    assert_eq!(limit(), raised);
    assert_eq!(raise_limit(), raised, "nothing is left to raise");
}

#[test]
fn an_exhausted_limit_is_named_with_what_raises_it() {
    let told = exhausted(&io::Error::from_raw_os_error(OF_PROCESS)).unwrap();
    for word in ["RLIMIT_NOFILE", "ulimit", "LimitNOFILE=", "connections"] {
        assert!(told.contains(word), "{told}");
    }
    assert!(exhausted(&io::Error::from_raw_os_error(OF_MACHINE)).unwrap().contains("fs.file-max"));
    assert_eq!(exhausted(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
}
