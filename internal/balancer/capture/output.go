// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// Output is where a client's capture goes.
type Output struct {
	// File takes a pcapng file; nil: none.
	File io.Writer
	// Lines takes a line for each packet, of JSON where JSON is set; nil: none.
	Lines io.Writer
	JSON  bool
	// Messages are for a person.
	Messages io.Writer
	// Frames and Application are the Writer's.
	Frames      Frames
	Application string

	writer  *Writer
	packets uint64
	counts  Counts
	ended   Reason
}

// Notify takes an event of the capture.
func (o *Output) Notify(e Event) error {
	if o.JSON && o.Lines != nil {
		if err := json.NewEncoder(o.Lines).Encode(e); err != nil {
			return fmt.Errorf("writing the capture: %w", err)
		}
	}
	if e.Started != nil {
		if err := o.start(e.Started); err != nil {
			return err
		}
	}
	if e.Packet != nil {
		if err := o.packet(e.Packet); err != nil {
			return err
		}
	}
	if e.Counts != nil {
		o.count(*e.Counts, e.Ended)
	}
	return nil
}

// start begins the file.
func (o *Output) start(s *Started) error {
	var at []string
	for _, h := range s.Hooks {
		at = append(at, fmt.Sprintf("%s (%s)", h.Interface, h.Hook))
	}
	fmt.Fprintf(o.Messages, "jeoul: capturing on %s for %v, at most %d packets/s; Ctrl-C ends it\n",
		trace.Printable(strings.Join(at, ", ")),
		s.Request.For(), s.Request.Rate)
	for _, note := range s.Notes {
		fmt.Fprintf(o.Messages, "jeoul: %s\n", trace.Printable(note))
	}
	if o.File == nil {
		return nil
	}
	var err error
	if o.writer, err = NewWriter(o.File, s, o.Frames, o.Application); err == nil {
		o.markWhole()
	}
	return err
}

// markWhole records that the file ends with a whole packet.
func (o *Output) markWhole() {
	if file, ok := o.File.(*WholePackets); ok {
		file.Mark()
	}
}

// packet writes one.
func (o *Output) packet(p *Packet) error {
	if o.writer != nil {
		// A packet captured before this process is killed is in the file, and a reader of a pipe sees it at once.
		err := o.writer.Write(p)
		if err == nil {
			err = o.writer.Flush()
		}
		if err != nil {
			return fmt.Errorf("after %d packets: %w", o.packets, err)
		}
		o.markWhole()
	}
	o.packets++
	if o.Lines == nil || o.JSON {
		return nil
	}
	if _, err := fmt.Fprintln(o.Lines, p.Line()); err != nil {
		return fmt.Errorf("writing the capture: %w", err)
	}
	return nil
}

// count reports how many packets were left out since the last counts.
func (o *Output) count(c Counts, ended Reason) {
	if n := c.Limited - o.counts.Limited; n > 0 {
		fmt.Fprintf(o.Messages, "jeoul: %d packets were left out, for they are more than --rate allows\n", n)
	}
	if n := c.Lost - o.counts.Lost; n > 0 {
		fmt.Fprintf(o.Messages, "jeoul: %d packets were left out, for they came faster than they are written; "+
			"narrow the filter, or use --sample\n", n)
	}
	o.counts, o.ended = c, ended
}

// Summary says in a sentence how many packets were captured, and why the capture ended.
func (o *Output) Summary() string {
	why := map[Reason]string{EndPackets: "--count is reached", EndBytes: "--bytes is reached", EndTime: "--for is over",
		EndClosed: "the daemon stops", "": "it was ended"}[o.ended]
	text := fmt.Sprintf("%d packets captured; %s", o.packets, why)
	if o.counts.Limited+o.counts.Lost > 0 {
		text += fmt.Sprintf("; %d more than --rate allows and %d that came too fast were left out", o.counts.Limited,
			o.counts.Lost)
	}
	return text
}

// Describe describes a request, for a log.
func (r Request) Describe() string {
	var words []string
	add := func(name, value string) {
		if value != "" && value != "0" {
			words = append(words, name+" "+value)
		}
	}
	add("service", r.Service)
	add("backend", r.Backend)
	add("outcome", strings.Join(r.Outcomes, ","))
	if r.Source.IsValid() {
		add("client", r.Source.String())
	}
	add("client port", fmt.Sprint(r.SourcePort))
	if r.Destination.IsValid() {
		add("vip", r.Destination.String())
	}
	add("port", fmt.Sprint(r.DestinationPort))
	if r.Protocol != 0 {
		add("protocol", r.Protocol.String())
	}
	add("family", fmt.Sprint(r.Family))
	add("interface", r.Interface)
	if r.Sample > 1 {
		add("one in", fmt.Sprint(r.Sample))
	}
	if len(words) == 0 {
		words = []string{"every packet"}
	}
	with := "headers"
	if r.Snap > 0 {
		with = fmt.Sprintf("up to %d bytes of each", r.Snap)
	}
	return strings.Join(append(words, with), ", ")
}
