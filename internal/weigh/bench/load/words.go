// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
)

// byClient collects messages, each with its clients: often all clients have the same error.
type byClient struct {
	messages []string
	clients  map[string][]string
}

func (b *byClient) add(client string, messages ...string) {
	if b.clients == nil {
		b.clients = map[string][]string{}
	}
	for _, message := range messages {
		if b.clients[message] == nil {
			b.messages = append(b.messages, message)
		}
		b.clients[message] = append(b.clients[message], client)
	}
}

// lines returns a line for each message, in the order of their arrival.
func (b *byClient) lines() []string {
	var lines []string
	for _, message := range b.messages {
		clients := b.clients[message]
		who := clients[0]
		if more := len(clients) - 1; more > 0 {
			who = fmt.Sprintf("%s and %d more", who, more)
		}
		lines = append(lines, who+": "+message)
	}
	return lines
}

// lastOutput returns the end of the process's standard error, or of its standard output if the former is empty, on one
// line, after a semicolon.
func (r *runner) lastOutput() string {
	const most = 300
	for _, from := range []*capped{&r.stderr, &r.stdout} {
		words := strings.Join(strings.Fields(string(from.Bytes())), " ")
		if words == "" {
			continue
		}
		if len(words) > most {
			words = "…" + strings.ToValidUTF8(words[len(words)-most:], "")
		}
		return fmt.Sprintf("; its last words: %q", words)
	}
	return ""
}

// capped keeps the first maxOutput bytes that are written to it, so that a faulty generator cannot use up the memory of
// the run.
type capped struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

const maxOutput = 64 << 20

func (c *capped) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buffer.Write(data[:min(len(data), maxOutput-c.buffer.Len())])
	return len(data), nil
}

// Bytes returns a copy of the kept bytes.
func (c *capped) Bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.buffer.Bytes())
}
