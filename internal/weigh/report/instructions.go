// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// instructionTargets are what a subject of ours may add to a connection at most, as a
// multiple of what another subject adds.
var instructionTargets = []struct {
	ours, against string
	most          float64
}{
	{"jeoul-l2dsr-tc", "ipvs-dr", 0.62},
	{"jeoul-l2dsr-tc", "bare-tc", 1.10},
	{"jeoul-nat-tc", "ipvs-nat", 0.60},
}

// instructionRivals are those that what is added is held against, each in a column.
var instructionRivals = []string{"bare-tc", "ipvs-dr", "ipvs-nat"}

// countsInstructions says whether the trials were in a machine whose clock counts them.
func (s *section) countsInstructions() bool { return s.has(results.InstructionsPerRequest) }

func init() {
	register(rankInstructions, func(s *section) *loadKind {
		if s.countsInstructions() {
			return instructionsKind()
		}
		return nil
	})
}

func instructionsKind() *loadKind {
	return &loadKind{question: "how many instructions does a request take, and how many of them does each add to it",
		sheets: instructionSheets, verdict: instructionVerdict, reading: instructionReading}
}

// added is how many instructions a point adds to what the baseline takes in its group.
func (s *section) added(g *group, p *point) (float64, bool) {
	baseline := g.best(s.Baseline, results.InstructionsPerRequest)
	if baseline == nil || p == nil || p == baseline || !p.has(results.InstructionsPerRequest) {
		return 0, false
	}
	return p.Stats[results.InstructionsPerRequest].Median - baseline.Stats[results.InstructionsPerRequest].Median, true
}

// addedRatio is what a point adds, as a multiple of what the best point of another
// subject in the group adds.
func (s *section) addedRatio(g *group, p *point, against string) (float64, bool) {
	own, ok := s.added(g, p)
	of, known := s.added(g, g.best(against, results.InstructionsPerRequest))
	// What adds nothing that can be told is no measure for anybody.
	if !ok || !known || of <= 0 {
		return 0, false
	}
	return own / of, true
}

func instructionSheets(s *section) []sheet {
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s, paramConcurrency, paramFileBytes)...)
	fields = append(fields,
		fixed(metricField("Instructions", "per request", results.InstructionsPerRequest), 0),
		fixed(spreadField("Spread", results.InstructionsPerRequest), 0),
		field{column: column{Title: "Added to " + s.Baseline, Unit: "per request", Numeric: true},
			cell: func(g *group, p *point, _ int) string {
				added, ok := s.added(g, p)
				if !ok {
					return wording.Missing
				}
				return wording.Decimal(added, 0)
			}},
	)
	for _, against := range instructionRivals {
		fields = append(fields, field{column: column{Title: "Added × " + against, Numeric: true},
			cell: func(g *group, p *point, _ int) string {
				r, ok := s.addedRatio(g, p, against)
				if !ok {
					return wording.Missing
				}
				return wording.RatioText(r)
			}})
	}
	fields = append(fields, fixed(metricField("Failed", "", results.Failed), 0), repeatsField())
	notes := []string{
		fmt.Sprintf("Added to %s: the difference of the medians. Added × a subject: that, as a multiple of what the subject adds.", s.Baseline),
	}
	if !s.measured(s.Baseline) {
		notes = append(notes,
			fmt.Sprintf("The baseline %s has no valid trial under this load, so it is not known what the others add.",
				s.Baseline))
	}
	return s.tabulate(sheet{
		Title: "Instructions",
		Lead: "Of clients, balancer, servers, switch and kernel together, on one emulated processor whose clock counts them. " +
			"They are instructions, and not cache misses, mispredicted branches or nanoseconds.",
		Notes: notes,
	}, results.InstructionsPerRequest, fields)
}

// instructionVerdict says what ours add, and holds it against the targets.
func instructionVerdict(s *section) []string {
	var sentences []string
	for _, name := range s.contenders() {
		var added span
		for _, g := range s.Groups {
			added.add(s.added(g, g.best(name, results.InstructionsPerRequest)))
		}
		if added.n > 0 {
			sentences = append(sentences, fmt.Sprintf("%s: %s adds %s instructions to a request%s.", s.title(),
				wording.Clean(name),
				added.text(func(v float64) string { return wording.Decimal(v, 0) }), overPoints(added.n)))
		}
	}
	return append(sentences, judgement(s.instructionTargets(), "")...)
}

// instructionTargets holds what ours add against the targets, all points together.
func (s *section) instructionTargets() []judged {
	var all []judged
	for _, target := range instructionTargets {
		j := judged{what: target.ours, bound: wording.RatioText(target.most) + " × what " + target.against + " adds",
			format: wording.Times}
		for _, g := range s.Groups {
			// The highest of a subject's variants is its least favourable.
			j.figures.add(s.addedRatio(g, g.best(target.ours, results.InstructionsPerRequest), target.against))
		}
		j.holds = j.figures.high <= target.most
		if j.figures.n > 0 {
			all = append(all, j)
		}
	}
	return all
}

var instructionReading = []paragraph{
	{"Instructions, not time",
		"One processor is emulated, and its clock advances with each instruction, whatever that is. Caches, branch prediction, " +
			"memory bandwidth and other cores are not in the figures: they compare programs that do alike work, and commits of one program. " +
			"What a packet costs on hardware is measured in nanoseconds, elsewhere."},
	{"What repeats",
		"The figures do not depend on how fast or how busy the machine is. Repeats differ by where timers fall and by how processes " +
			"happen to take turns: a difference smaller than the spread is no difference."},
}

// virtualFacts say what the virtual machine is that a run was in.
func virtualFacts(v *results.Virtual) (machine, host string) {
	if v == nil {
		return "", ""
	}
	how := map[string]string{"kvm": "with KVM", "tcg": "emulated (TCG)",
		"tcg-icount": "emulated (TCG), one processor whose clock counts instructions"}[v.Accelerator]
	if how == "" {
		how = v.Accelerator
	}
	parts := []string{v.Emulator, how}
	if v.Reason != "" {
		parts = append(parts, v.Reason)
	}
	if v.Package != "" {
		parts = append(parts, v.Package)
	}
	if v.Clock != "" {
		parts = append(parts, "clock source "+v.Clock)
	}
	host = fmt.Sprintf("%s, %s, Linux %s", v.HostCPU, wording.Counted("core")(fmt.Sprint(v.HostCores)), v.HostKernel)
	return strings.Join(parts, ", "), strings.TrimPrefix(host, ", ")
}
