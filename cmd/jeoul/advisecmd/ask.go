// SPDX-License-Identifier: Apache-2.0

package advisecmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/advise"
)

// errUnanswered means that flags leave questions unanswered, and standard input is no terminal.
var errUnanswered = errors.New("answers are missing, and there is no terminal to ask at")

// question is a question that is asked if no flag answers it.
type question struct {
	flag, text string
	// answered reports whether a flag has answered, take takes an answer.
	answered bool
	take     func(string) error
}

// questions returns the six questions, with the parts of those that have several.
func (c *Cmd) questions() []question {
	return []question{
		{"speaks", "What do clients speak (http, https, tcp, udp, dns)?", c.Speaks != "", word(&c.Speaks)},
		{"requests", "How many requests a second, of all clients?", c.Requests != 0, number(&c.Requests)},
		{"size", "How many bytes has a reply?", c.Size != 0, number(&c.Size)},
		{"lifetime", "Is there a connection for each request, or for many (short, long)?", c.Lifetime != "",
			word(&c.Lifetime)},
		{"client-address", "Where must backends find the client's address (none, header, packet)?",
			c.ClientAddress != "", word(&c.ClientAddress)},
		{"network", "Are backends on the balancer's segment, or behind routers (segment, routed)?", c.Network != "",
			word(&c.Network)},
		{"permits", "What does the network permit (of tunnels, backends, bypass, with commas; or none)?",
			len(c.Permits) > 0, c.permit},
		{"failures", "How many balancers may fail at once?", c.Failures >= 0, c.fail},
	}
}

func word(to *string) func(string) error {
	return func(answer string) error { *to = answer; return nil }
}

func number(to *float64) func(string) error {
	return func(answer string) (err error) {
		if *to, err = strconv.ParseFloat(answer, 64); err != nil {
			return fmt.Errorf("%q is not a number", answer)
		}
		return nil
	}
}

func (c *Cmd) permit(answer string) error {
	c.Permits = strings.FieldsFunc(answer, func(r rune) bool { return r == ',' || r == ' ' })
	return nil
}

func (c *Cmd) fail(answer string) (err error) {
	if c.Failures, err = strconv.Atoi(answer); err != nil {
		return fmt.Errorf("%q is not a whole number", answer)
	}
	return nil
}

// answers returns the flags' answers, and asks for the others at a terminal.
func (c *Cmd) answers(from *os.File, to io.Writer) (advise.Answers, error) {
	var missing []question
	var flags []string
	for _, q := range c.questions() {
		if !q.answered {
			missing, flags = append(missing, q), append(flags, "--"+q.flag)
		}
	}
	if len(missing) > 0 {
		if _, err := unix.IoctlGetTermios(int(from.Fd()), unix.TCGETS); err != nil {
			return advise.Answers{}, fmt.Errorf("advise: %w: give %s", errUnanswered, strings.Join(flags, ", "))
		}
		if err := ask(missing, from, to); err != nil {
			return advise.Answers{}, err
		}
	}
	return c.given()
}

// ask asks each question until its answer can be parsed; the answer is validated together with the others.
func ask(questions []question, from io.Reader, to io.Writer) error {
	lines := bufio.NewScanner(from)
	for _, q := range questions {
		for {
			fmt.Fprintf(to, "%s ", q.text)
			if !lines.Scan() {
				return errors.Join(errUnanswered, lines.Err())
			}
			answer := strings.TrimSpace(lines.Text())
			if answer == "" {
				continue
			}
			err := q.take(answer)
			if err == nil {
				break
			}
			fmt.Fprintln(to, err)
		}
	}
	return nil
}

// given returns the answers that the flags give.
func (c *Cmd) given() (advise.Answers, error) {
	a := advise.Answers{Speaks: advise.Speaks(c.Speaks), Layer7: c.Layer7, Requests: c.Requests, Bytes: c.Size,
		Lifetime: advise.Lifetime(c.Lifetime), Open: c.Open, ClientAddress: advise.ClientAddress(c.ClientAddress),
		Network: advise.Network(c.Network), Failures: c.Failures, Cores: c.Cores, Link: c.Link, Usage: c.Usage,
		Permits: []advise.Permission{}}
	for _, p := range c.Permits {
		if p != "none" {
			a.Permits = append(a.Permits, advise.Permission(p))
		} else if len(c.Permits) > 1 {
			return a, fmt.Errorf("advise: %w: permits: none stands alone: leave it, or the others, out",
				advise.ErrAnswer)
		}
	}
	return a, nil
}
