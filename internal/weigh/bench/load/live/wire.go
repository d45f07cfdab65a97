// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// requestBytes is the length of a request: two numbers.
const requestBytes = 16

// An answer is the request, the number of the connection at the server, and the server's name, padded with zeros.
// Numbers are in network byte order.
const (
	nameBytes   = 24
	answerBytes = requestBytes + 8 + nameBytes
)

// ErrName means that a server's name does not fit into an answer.
var ErrName = errors.New("a server's name has 1 to 24 bytes")

// request is a client's request: its flow, and the number of the request.
type request struct{ Flow, Number uint64 }

func (r request) bytes() []byte {
	b := make([]byte, 0, requestBytes)
	b = binary.BigEndian.AppendUint64(b, r.Flow)
	return binary.BigEndian.AppendUint64(b, r.Number)
}

// closeMode is how a server has to end a connection after its answer: the first byte of a request's number.
type closeMode byte

// The endings.
const (
	// staysOpen: the server leaves the connection open.
	staysOpen closeMode = iota
	closeByFIN
	// closeByReset: the server sends a TCP reset.
	closeByReset
)

// endingAt is the offset of the ending in a request, in bytes, and endingShift its shift in the request's number.
const (
	endingAt    = 8
	endingShift = 56
)

// numbered returns the number of a request after which the connection has to end this way.
func (e closeMode) numbered(n uint64) uint64 {
	return uint64(e)<<endingShift | n&(1<<endingShift-1)
}

// peer is the server that answered, and its number for the connection, from 1; 0 without a connection (UDP).
type peer struct {
	Server string
	Number uint64
}

// answerer builds the answers of a server.
type answerer struct{ name [nameBytes]byte }

func newAnswerer(name string) (answerer, error) {
	var a answerer
	if name == "" || len(name) > nameBytes {
		return a, fmt.Errorf("%w: %q", ErrName, name)
	}
	copy(a.name[:], name)
	return a, nil
}

// answer appends the answer to a request of requestBytes bytes.
func (a answerer) answer(to, request []byte, connection uint64) []byte {
	to = append(to, request...)
	to = binary.BigEndian.AppendUint64(to, connection)
	return append(to, a.name[:]...)
}

// errWrong means that an answer does not belong to its request.
var errWrong = errors.New("a wrong answer")

// read parses an answer; errWrong if it is no answer to r.
func (r request) read(answer []byte) (peer, error) {
	if len(answer) != answerBytes || !bytes.Equal(answer[:requestBytes], r.bytes()) {
		return peer{}, errWrong
	}
	name := bytes.TrimRight(answer[requestBytes+8:], "\x00")
	return peer{string(name), binary.BigEndian.Uint64(answer[requestBytes:])}, nil
}
