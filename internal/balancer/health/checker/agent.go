// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/health"
)

// lineBytes is how long an agent's line may be.
const lineBytes = 1024

// agent reads a line of HAProxy's agent-check protocol (its manual, "agent-check").
func (a *ask) agent() health.Answer {
	conn, err := a.dial("tcp")
	if err != nil {
		return a.answerOf(err)
	}
	defer finish(conn)
	line, err := readLine(conn)
	if err != nil {
		return a.answerOf(err)
	}
	return evaluateAgent(line)
}

// readLine reads up to a line's end, or all that comes.
func readLine(r io.Reader) (string, error) {
	buffer := make([]byte, 0, lineBytes)
	for len(buffer) < lineBytes {
		n, err := r.Read(buffer[len(buffer):lineBytes])
		buffer = buffer[:len(buffer)+n]
		if i := bytes.IndexAny(buffer, "\r\n\x00"); i >= 0 {
			return string(buffer[:i]), nil
		}
		if err == io.EOF || len(buffer) > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			break // a line need not end where the connection does
		}
		if err != nil {
			return "", err
		}
	}
	return string(buffer), nil
}

// evaluateAgent makes an answer of an agent's line: words, and after # (or after a word that says
// that the backend is down) a reason. The agent's word holds at once, without rise and fall.
func evaluateAgent(line string) health.Answer {
	line, comment, _ := strings.Cut(line, "#")
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
	answer := health.Answer{Outcome: health.Passed, Final: true, Text: plain(strings.Join(words, " "))}
	known := false
	for i, word := range words {
		switch word = strings.ToLower(word); word {
		case "up":
		case "ready":
			answer.Drains, answer.Drain = true, false
		case "drain":
			answer.Drains, answer.Drain = true, true
		case "maint", "down", "stopped", "fail", "failed":
			answer.Outcome = health.Failed
			if comment == "" && i+1 < len(words) {
				comment = strings.Join(words[i+1:], " ")
			}
			answer.Reason = "says that it is " + agentWords[word]
			if comment = strings.TrimSpace(comment); comment != "" {
				answer.Reason += ": " + plain(comment)
			}
			return answer
		default:
			share, ok := percentage(word)
			if !ok {
				continue // HAProxy's maxconn:N, and words of the future
			}
			answer.Weighs, answer.Weight = true, share
		}
		known = true
	}
	if !known {
		return health.Fail("no agent", "answers with "+excerpt([]byte(line))+", in which no word is an agent's")
	}
	return answer
}

var agentWords = map[string]string{
	"maint": "under maintenance", "down": "down", "stopped": "stopped", "fail": "failing", "failed": "failing",
}

// percentage reads "75%", up to 25,600 %: HAProxy's heaviest weight where 1 is the lightest.
func percentage(word string) (uint16, bool) {
	number, ok := strings.CutSuffix(word, "%")
	if !ok {
		return 0, false
	}
	share, err := strconv.ParseUint(number, 10, 16)
	return uint16(share), err == nil && share <= 25600
}
