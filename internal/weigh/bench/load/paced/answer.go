// SPDX-License-Identifier: Apache-2.0

package paced

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// errAnswer means that an answer is not the expected one.
var errAnswer = errors.New("not the answer")

// maxHead is the maximum length of an answer's status line and headers.
const maxHead = 8192

// answer is the received part of an answer: a status line, headers, and a body whose length a header gives (RFC 9112,
// sections 4 to 6). A server that has a file sends no other answers, such as chunked ones.
type answer struct {
	head []byte
	// left is the number of bytes of the body that are still to come, once the head is complete.
	left int
	// closes means that the server will close the connection.
	closes bool
	whole  bool
}

func (a *answer) reset() { *a = answer{head: a.head[:0]} }

// take adds received bytes; whole is then true if the answer is complete. The error wraps errAnswer.
func (a *answer) take(data []byte, fileBytes int) error {
	if a.whole {
		return fmt.Errorf("%w: %d bytes too much", errAnswer, len(data))
	}
	if a.left == 0 {
		a.head = append(a.head, data...)
		end := bytes.Index(a.head, []byte("\r\n\r\n"))
		if end < 0 {
			if len(a.head) > maxHead {
				return fmt.Errorf("%w: no end of its headers", errAnswer)
			}
			return nil
		}
		if err := a.read(a.head[:end], fileBytes); err != nil {
			return err
		}
		a.left = fileBytes
		data = a.head[end+4:]
	}
	if a.left -= len(data); a.left < 0 {
		return fmt.Errorf("%w: %d bytes too much", errAnswer, -a.left)
	}
	a.whole = a.left == 0
	return nil
}

// read reads the status line and the headers.
func (a *answer) read(head []byte, fileBytes int) error {
	status, headers, _ := bytes.Cut(head, []byte("\r\n"))
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("%w: %.60q", errAnswer, status)
	}
	length := -1
	for len(headers) > 0 {
		var line []byte
		line, headers, _ = bytes.Cut(headers, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			n, err := strconv.Atoi(string(value))
			if err != nil {
				return fmt.Errorf("%w: %.60q", errAnswer, line)
			}
			length = n
		case bytes.EqualFold(name, []byte("Connection")):
			a.closes = bytes.EqualFold(value, []byte("close"))
		}
	}
	if length != fileBytes {
		return fmt.Errorf("%w: its length is %d, not %d", errAnswer, length, fileBytes)
	}
	return nil
}
