// SPDX-License-Identifier: Apache-2.0

package wire

// Serve makes server ports answer all requests as a load defines (its Kind, its Response, its Question), from now on
// and without a Run.
func (t *Tester) Serve(load Load) error {
	load, err := load.withDefaults()
	if err != nil {
		return err
	}
	return t.control.take(load)
}

// Served returns the ports' counters since they were created, as a step.
func (t *Tester) Served() (Step, error) {
	n, err := t.counts()
	if err != nil {
		return Step{}, err
	}
	var s Step
	n.fillPackets(&s)
	for _, accepted := range s.PerServer {
		s.Established += accepted
	}
	return s, nil
}
