// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// recorder keeps Events as text.
type recorder []string

func (r *recorder) Eventf(on, _ runtime.Object, kind, reason, _, note string, args ...any) {
	*r = append(*r, fmt.Sprintf("%s %s %s: %s", kind, on.(*corev1.Service).Name, reason, fmt.Sprintf(note, args...)))
}

// writerTest is a writer before an API server that keeps applied objects.
type writerTest struct {
	Writer
	events  recorder
	patches []appliedStatus
	// managers are the managers of the patches.
	managers []string
	// conflict is answered to patches of addresses.
	conflict bool
}

func newWriterTest(t *testing.T) *writerTest {
	client := fake.NewClientset()
	r := &writerTest{}
	client.PrependReactor("patch", "services", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		var sent appliedStatus
		if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil || patch.GetSubresource() != "status" {
			t.Errorf("patch of %q: %v", patch.GetSubresource(), err)
		}
		if r.conflict && sent.Status != nil && sent.Status.LoadBalancer != nil {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "services"}, sent.Metadata.Name,
				fmt.Errorf("another manager"))
		}
		r.patches = append(r.patches, sent)
		r.managers = append(r.managers, action.(clienttesting.PatchActionImpl).PatchOptions.FieldManager)
		return true, &corev1.Service{}, nil
	})
	r.Writer = Writer{Client: client, Recorder: &r.events, Class: model.DefaultClass}
	return r
}

// write writes one Service's status, and copies the applied fields into the Service.
func (r *writerTest) write(t *testing.T, s *corev1.Service, v *model.Verdict) {
	t.Helper()
	verdicts := map[string]model.Verdict{}
	if v != nil {
		verdicts[model.Key(s)] = *v
	}
	before := len(r.patches)
	if err := r.Write(context.Background(), []*corev1.Service{s}, verdicts); err != nil {
		t.Fatal(err)
	}
	for i, p := range r.patches[before:] {
		manager := r.managers[before+i]
		s.ManagedFields = slices.DeleteFunc(s.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
			return m.Manager == manager
		})
		if p.Status == nil {
			if len(s.ManagedFields) == 0 {
				s.Status = corev1.ServiceStatus{}
			}
			continue
		}
		fields := `{"f:status":{"f:conditions":{}}}`
		if p.Status.LoadBalancer != nil {
			fields = `{"f:status":{"f:conditions":{},"f:loadBalancer":{"f:ingress":{}}}}`
		}
		s.ManagedFields = append(s.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Subresource: "status",
			FieldsV1: metav1.NewFieldsV1(fields)})
		s.Status.Conditions = p.Status.Conditions
		if p.Status.LoadBalancer != nil {
			s.Status.LoadBalancer = *p.Status.LoadBalancer
		}
	}
}

func web() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Generation: 7}}
}

func served(mode lb.Mode, problems ...model.Problem) *model.Verdict {
	return &model.Verdict{Ours: true, Mode: mode, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Problems: problems}
}

func TestWrite(t *testing.T) {
	r, s := newWriterTest(t), web()
	r.write(t, s, served(lb.L2DSR))
	if got := s.Status.LoadBalancer.Ingress; len(got) != 1 || got[0].IP != "192.0.2.1" ||
		*got[0].IPMode != corev1.LoadBalancerIPModeVIP {
		t.Errorf("addresses: %+v", got)
	}
	first := s.Status.Conditions[1].LastTransitionTime
	r.write(t, s, served(lb.L2DSR))
	if len(r.patches) != 1 {
		t.Errorf("%d patches though nothing changed", len(r.patches))
	}
	r.write(t, s, served(lb.FullNAT))
	if got := s.Status.LoadBalancer.Ingress[0]; *got.IPMode != corev1.LoadBalancerIPModeProxy ||
		s.Status.Conditions[1].LastTransitionTime != first {
		t.Errorf("full NAT: %+v, %+v", got, s.Status.Conditions)
	}
	r.write(t, s,
		served(lb.FullNAT, model.Problem{Reason: model.ReasonInvalidAnnotation, Field: "f",
			Message: strings.Repeat("m", 5000)}))
	c := s.Status.Conditions[1]
	if c.Type != Accepted || c.Status != metav1.ConditionFalse || c.Reason != model.ReasonInvalidAnnotation ||
		c.ObservedGeneration != 7 || len(c.Message) > 1024 {
		t.Errorf("condition %+v", c)
	}
	want := []string{"Normal web Assigned: 192.0.2.1", "Normal web Accepted: served by mode l2dsr",
		"Normal web Accepted: served by mode fullnat"}
	if !slices.Equal(r.events[:3], want) || len(r.events) != 4 ||
		!strings.HasPrefix(r.events[3], "Warning web InvalidAnnotation: f: mmm") {
		t.Errorf("events: %q", r.events)
	}
}

// TestWriteLeavesOthers: the status of a Service that is not ours is left alone; of one that was, ours is given up.
func TestWriteLeavesOthers(t *testing.T) {
	r, s := newWriterTest(t), web()
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "metallb", Subresource: "status"}}
	r.write(t, s, nil)
	refused := &model.Verdict{Problems: []model.Problem{{Reason: model.ReasonNotLoadBalancer, Field: "spec.type",
		Message: "no"}}}
	r.write(t, s, refused)
	r.write(t, s, refused)
	if len(r.patches) != 0 || len(r.events) != 1 {
		t.Errorf("patches %v, events %q", r.patches, r.events)
	}
	s.ManagedFields[0].Manager = model.FieldManager
	r.write(t, s, nil)
	if len(r.patches) != 1 || r.patches[0].Status != nil {
		t.Errorf("what was ours: %+v", r.patches)
	}
}

// TestClasses: two classes of one cluster leave each other's Services alone.
func TestClasses(t *testing.T) {
	for _, classes := range [][2]string{{model.DefaultClass, "example.com/b"}, {"example.com/b", model.DefaultClass},
		{"example.com/a", "example.com/b"}} {
		one, other, s := newWriterTest(t), newWriterTest(t), web()
		one.Class, other.Class = classes[0], classes[1]
		one.write(t, s, served(lb.L2DSR))
		other.write(t, s, nil)
		if len(other.patches) != 0 || len(s.Status.LoadBalancer.Ingress) != 1 {
			t.Errorf("%s releases what %s wrote: %+v", classes[1], classes[0], other.patches)
		}
		one.write(t, s, nil)
		if len(s.Status.LoadBalancer.Ingress) != 0 {
			t.Errorf("%s does not release what it wrote itself", classes[0])
		}
	}
}

// TestAdopt: fields that an earlier version wrote, as the one manager of all classes, become those of the class. They
// are there all the time.
func TestAdopt(t *testing.T) {
	before, r, s := newWriterTest(t), newWriterTest(t), web()
	before.write(t, s, served(lb.L2DSR))
	r.Class = "example.com/b"
	for range 2 {
		r.write(t, s, served(lb.L2DSR))
	}
	if want := []string{model.ManagerOf("example.com/b"), model.FieldManager}; !slices.Equal(r.managers, want) {
		t.Fatalf("patches of %q; want %q", r.managers, want)
	}
	kept := r.patches[0].Status
	if kept == nil || kept.LoadBalancer == nil || len(kept.LoadBalancer.Ingress) != 1 || len(kept.Conditions) != 2 ||
		r.patches[1].Status != nil {
		t.Errorf("patches %+v", r.patches)
	}
}

// TestAdoptConditions: where an earlier version wrote the conditions alone, the addresses stay another controller's.
func TestAdoptConditions(t *testing.T) {
	before, r, s := newWriterTest(t), newWriterTest(t), web()
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	before.conflict, r.conflict, r.Class = true, true, "example.com/b"
	before.write(t, s, served(lb.L2DSR))
	r.write(t, s, served(lb.L2DSR))
	for _, m := range s.ManagedFields {
		if strings.Contains(m.FieldsV1.GetRawString(), "f:loadBalancer") {
			t.Errorf("%s owns the addresses", m.Manager)
		}
	}
}

// TestWriteConflict: addresses that another controller owns stay, and an Event says so once. They are not held.
func TestWriteConflict(t *testing.T) {
	r, s := newWriterTest(t), web()
	r.conflict = true
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	for range 3 {
		r.write(t, s, served(lb.L2DSR))
	}
	conflicts := slices.DeleteFunc(slices.Clone(r.events), func(e string) bool {
		return !strings.Contains(e, "StatusConflict")
	})
	if s.Status.LoadBalancer.Ingress[0].IP != "203.0.113.1" || len(conflicts) != 1 || len(s.Status.Conditions) != 2 {
		t.Errorf("status %+v, events %q", s.Status, r.events)
	}
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &r.Class}
	built := model.Build(model.Cluster{Services: []*corev1.Service{s}}, model.Settings{Class: r.Class}, nil)
	if held := built.Grants["shop/web"].Held; len(held) > 0 {
		t.Errorf("the Service is served at another controller's %v", held)
	}
}

// TestAddressesComeFirst: the first address of a Service does not wait for the conditions of others, and a pass ends
// after some writes where newer verdicts wait. The next one goes on with the others.
func TestAddressesComeFirst(t *testing.T) {
	r, verdicts := newWriterTest(t), map[string]model.Verdict{}
	var services []*corev1.Service
	for i := range 2*passWrites + 50 {
		s := web()
		s.Name, s.UID = fmt.Sprintf("s%03d", i), types.UID(fmt.Sprint(i))
		s.Status.LoadBalancer.Ingress = ingressOf(*served(lb.L2DSR))
		services, verdicts[model.Key(s)] = append(services, s), *served(lb.L2DSR)
	}
	last := services[len(services)-1]
	last.Status = corev1.ServiceStatus{}
	newer := true
	r.Newer = func() bool { return newer }
	write := func() (names []string) {
		t.Helper()
		before := len(r.patches)
		if err := r.Write(t.Context(), services, verdicts); err != nil {
			t.Fatal(err)
		}
		for _, p := range r.patches[before:] {
			names = append(names, p.Metadata.Name)
			i := slices.IndexFunc(services, func(s *corev1.Service) bool { return s.Name == p.Metadata.Name })
			services[i] = services[i].DeepCopy()
			services[i].Status.LoadBalancer, services[i].Status.Conditions = *p.Status.LoadBalancer, p.Status.Conditions
		}
		return names
	}
	first := write()
	if len(first) != passWrites || first[0] != last.Name {
		t.Errorf("the first pass writes %d, at first %s; want %d, at first %s", len(first), first[0], passWrites, last.Name)
	}
	newer = false
	if second := write(); len(second) != len(services)-passWrites || slices.Contains(second, last.Name) {
		t.Errorf("the second pass writes %d", len(second))
	}
	if third := write(); len(third) != 0 {
		t.Errorf("the third pass writes %v", third)
	}
}
