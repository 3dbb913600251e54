// SPDX-License-Identifier: GPL-2.0-or-later
//! One connection to memcached, speaking the text protocol (`protocol.txt` of
//! its sources).
//!
//! Client libraries reconnect, retry and pool, which is what applications
//! want. This one must not: every request is sent once, on the one connection,
//! and whatever is not the right answer is an error to be counted.

use std::{
    io::{self, BufRead, BufReader, IoSlice, Read, Write},
    net::{SocketAddr, TcpStream},
};

use super::PATIENCE;

/// Longest line of an answer; real ones have less than a hundred bytes.
const MAX_LINE: u64 = 2048;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no connection to {address}: {source}")]
    Connect {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    #[error("the server closed the connection")]
    Closed,
    #[error("the server answered '{0}'")]
    Answer(String),
    #[error("key {0} is not there")]
    Missing(String),
}

pub struct Client {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Result<Client, ClientError> {
        let connect = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = connect().map_err(|source| ClientError::Connect { address, source })?;
        Ok(Client {
            stream: BufReader::with_capacity(64 << 10, stream),
            line: String::new(),
        })
    }

    pub fn version(&mut self) -> Result<String, ClientError> {
        self.stream.get_mut().write_all(b"version\r\n")?;
        self.read_line()?;
        match self.line.strip_prefix("VERSION ") {
            Some(version) => Ok(version.to_string()),
            None => Err(ClientError::Answer(self.line.clone())),
        }
    }

    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<(), ClientError> {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        let mut parts = [
            IoSlice::new(head.as_bytes()),
            IoSlice::new(value),
            IoSlice::new(b"\r\n"),
        ];
        write_all_vectored(self.stream.get_mut(), &mut parts)?;
        self.read_line()?;
        match self.line.as_str() {
            "STORED" => Ok(()),
            _ => Err(ClientError::Answer(self.line.clone())),
        }
    }

    /// Replaces the content of `value` by the server's answer.
    pub fn get(&mut self, key: &str, value: &mut Vec<u8>) -> Result<(), ClientError> {
        let request = format!("get {key}\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read_line()?;
        if self.line == "END" {
            return Err(ClientError::Missing(key.into()));
        }
        let size =
            value_size(&self.line, key).ok_or_else(|| ClientError::Answer(self.line.clone()))?;
        value.resize(size, 0);
        self.stream.read_exact(value)?;
        for expected in ["", "END"] {
            self.read_line()?;
            if self.line != expected {
                return Err(ClientError::Answer(self.line.clone()));
            }
        }
        Ok(())
    }

    fn read_line(&mut self) -> Result<(), ClientError> {
        self.line.clear();
        let count = (&mut self.stream)
            .take(MAX_LINE)
            .read_line(&mut self.line)?;
        if count == 0 {
            return Err(ClientError::Closed);
        }
        match self.line.strip_suffix("\r\n") {
            Some(line) => {
                let length = line.len();
                self.line.truncate(length);
                Ok(())
            }
            None => Err(ClientError::Answer(self.line.clone())),
        }
    }
}

/// The size in `VALUE <key> <flags> <bytes>`, the answer to a request for `key`.
fn value_size(line: &str, key: &str) -> Option<usize> {
    let rest = line.strip_prefix("VALUE ")?.strip_prefix(key)?;
    let (flags, size) = rest.strip_prefix(' ')?.split_once(' ')?;
    flags.parse::<u32>().ok()?;
    size.parse().ok()
}

fn write_all_vectored(to: &mut impl Write, mut parts: &mut [IoSlice]) -> io::Result<()> {
    while !parts.is_empty() {
        match to.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut parts, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread, thread::JoinHandle};

    /// A server that gives these answers, whatever it is asked, then closes;
    /// it returns what it was asked.
    fn server(answers: &'static [u8], request: usize) -> (Client, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut asked = vec![0; request];
            peer.read_exact(&mut asked).unwrap();
            peer.write_all(answers).unwrap();
            asked
        });
        (Client::connect(address).unwrap(), thread)
    }

    #[test]
    fn a_value_may_hold_any_bytes() {
        let (mut client, asked) = server(b"VALUE k 0 7\r\n\r\nEND\r\n\r\nEND\r\n", 7);
        let mut value = vec![1, 2, 3];
        client.get("k", &mut value).unwrap();
        assert_eq!(value, b"\r\nEND\r\n");
        assert_eq!(asked.join().unwrap(), b"get k\r\n");
    }

    #[test]
    fn a_value_is_stored_as_it_is() {
        let (mut client, asked) = server(b"STORED\r\n", 18);
        client.set("k", b"\r\n\0").unwrap();
        assert_eq!(asked.join().unwrap(), b"set k 0 0 3\r\n\r\n\0\r\n");
    }

    #[test]
    fn anything_but_the_value_is_an_error() {
        let cases: [(&'static [u8], &str); 7] = [
            (b"END\r\n", "key k is not there"),
            (b"VALUE other 0 1\r\nx\r\nEND\r\n", "answered 'VALUE other"),
            (b"VALUE k 0 -1\r\n", "answered 'VALUE k 0 -1'"),
            (b"SERVER_ERROR out of memory\r\n", "out of memory"),
            (b"", "closed the connection"),
            (b"VALUE k 0 9\r\nshort", "the connection failed"),
            (b"VALUE k 0 1\r\nlonger\r\nEND\r\n", "answered 'onger'"),
        ];
        for (answer, expected) in cases {
            let (mut client, asked) = server(answer, 7);
            let error = client.get("k", &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            asked.join().unwrap();
        }
    }

    #[test]
    fn a_refused_store_is_an_error() {
        let (mut client, asked) = server(b"SERVER_ERROR object too large for cache\r\n", 16);
        let error = client.set("k", b"x").unwrap_err().to_string();
        assert!(error.contains("too large"), "{error}");
        asked.join().unwrap();
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        let (mut client, asked) = server(&[b'x'; 4096], 9);
        assert!(matches!(client.version(), Err(ClientError::Answer(_))));
        asked.join().unwrap();
    }
}
