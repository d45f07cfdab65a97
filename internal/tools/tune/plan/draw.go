// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"
)

// perRow is the number of CPUs in a row of the drawing.
const perRow = 16

// Draw draws the plan as text, a letter for each CPU.
func (p *Plan) Draw() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", p.Card.Name, counted(p.Queues(), "queue"))
	if p.Card.MaxQueues > 0 {
		fmt.Fprintf(&b, " of %d", p.Card.MaxQueues)
	}
	if p.Card.Node >= 0 {
		fmt.Fprintf(&b, ", on NUMA node %d", p.Card.Node)
	}
	b.WriteString("\n\n")
	for _, node := range slices.Sorted(maps.Keys(p.top.Nodes)) {
		p.drawNode(&b, node)
	}
	b.WriteString("\nP takes packets   . runs programs   s system   - idle (its core takes packets)\n")
	if p.Shared {
		b.WriteString("B takes packets and runs programs\n")
	}
	b.WriteString("\n")
	row := func(what string, set cpuset.CPUSet) {
		if !set.IsEmpty() {
			fmt.Fprintf(&b, "%-9s %s (%d)\n", what, set, set.Size())
		}
	}
	row("packets", p.PacketSet())
	row("programs", p.Programs)
	row("system", p.System)
	row("idle", p.Idle)
	for _, note := range p.Notes {
		b.WriteString("- " + note + "\n")
	}
	return b.String()
}

func (p *Plan) drawNode(b *strings.Builder, node int) {
	list := p.top.Nodes[node].List()
	for start := 0; start < len(list); start += perRow {
		row := list[start:min(start+perRow, len(list))]
		label := ""
		if start == 0 {
			label = fmt.Sprintf("node %d", node)
		}
		fmt.Fprintf(b, "%-8s CPU %3d ", label, row[0])
		for i, cpu := range row {
			if i%4 == 0 {
				b.WriteByte(' ')
			}
			b.WriteByte(p.letter(cpu))
		}
		fmt.Fprintf(b, "  %3d\n", row[len(row)-1])
	}
}

func (p *Plan) letter(cpu int) byte {
	packets := slices.Contains(p.Packets, cpu)
	switch {
	case packets && p.Programs.Contains(cpu):
		return 'B'
	case packets:
		return 'P'
	case p.Idle.Contains(cpu):
		return '-'
	case p.System.Contains(cpu):
		return 's'
	}
	return '.'
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
