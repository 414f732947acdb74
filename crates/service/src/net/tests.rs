use super::*;

#[tokio::test]
async fn port_zero_picks_a_free_port() {
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    assert_ne!(listener.local_addr().unwrap().port(), 0);
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let holder = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = holder.local_addr().unwrap();
    let error = bind(address).await.unwrap_err();
    let expected = format!(
        "cannot listen on {address}: the port is in use; stop the process that holds it, \
         or choose another port (0 picks a free one)"
    );
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn an_address_of_another_machine_is_named() {
    // TEST-NET-1 of RFC 5737: no machine has it.
    let error = bind("192.0.2.1:0".parse().unwrap()).await.unwrap_err();
    assert!(matches!(error, BindError::NoSuchAddress { .. }), "{error:?}");
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_fleet_that_comes_at_once_need_not_try_again() {
    let bound = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse::<usize>().unwrap();
    // Nobody accepts: all of them wait. One for which there is no room would hear nothing for a second, and then again.
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..bound.min(300) {
        let connecting = tokio::net::TcpStream::connect(address);
        let patience = std::time::Duration::from_millis(500);
        waiting.push(tokio::time::timeout(patience, connecting).await.expect("room to wait").unwrap());
    }
}
