// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/fake"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/gateway"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
)

// discardRecorder takes Events, and drops them.
type discardRecorder struct{ n int }

func (s *discardRecorder) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) { s.n++ }

func accept(status metav1.ConditionStatus) []metav1.Condition {
	return []metav1.Condition{{Type: "Accepted", Status: status, Reason: "Because", Message: "so",
		ObservedGeneration: 1}}
}

// TestWriteRoute: parents of other controllers stay, ours are replaced, and a status that is right is not written.
func TestWriteRoute(t *testing.T) {
	foreign := v1.RouteParentStatus{ParentRef: v1.ParentReference{Name: "theirs"}, ControllerName: "example.com/other",
		Conditions: accept(metav1.ConditionTrue)}
	old := v1.RouteParentStatus{ParentRef: v1.ParentReference{Name: "old"}, ControllerName: "jeoul.io/balancer"}
	route := &v1.TCPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "r", Generation: 1}}
	route.Status.Parents = []v1.RouteParentStatus{foreign, old}
	client, events := fake.NewClientset(route), &discardRecorder{}
	w := &Writer{Gateways: client, Recorder: events}
	ours := v1.RouteParentStatus{ParentRef: v1.ParentReference{Name: "gw"}, ControllerName: "jeoul.io/balancer",
		Conditions: accept(metav1.ConditionFalse)}
	write := func() *v1.TCPRoute {
		now, err := client.GatewayV1().TCPRoutes("a").Get(t.Context(), "r", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		err = w.WriteGateways(t.Context(), gateway.Report{Routes: []gateway.RouteStatus{{Object: now, Kind: "TCPRoute",
			Controller: "jeoul.io/balancer", Parents: []v1.RouteParentStatus{ours}}}})
		if err != nil {
			t.Fatal(err)
		}
		now, _ = client.GatewayV1().TCPRoutes("a").Get(t.Context(), "r", metav1.GetOptions{})
		return now
	}
	got := write().Status.Parents
	if len(got) != 2 || got[0].ParentRef.Name != "theirs" || got[1].ParentRef.Name != "gw" || events.n != 1 {
		t.Fatalf("got %+v and %d Events", got, events.n)
	}
	writes := len(client.Actions())
	if write(); events.n != 1 || len(client.Actions()) != writes+2 { // it is read twice
		t.Errorf("what is as it should be was written again: %v", client.Actions()[writes:])
	}
}

// routeTest writes the parents of one route, by each of its controllers.
type routeTest struct {
	*Writer
	client *fake.Clientset
}

func newRouteTest(t *testing.T, parents ...v1.RouteParentStatus) routeTest {
	t.Helper()
	route := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "r", Generation: 1}}
	route.Status.Parents = parents
	client := fake.NewClientset(route)
	return routeTest{&Writer{Gateways: client, Recorder: &discardRecorder{}}, client}
}

// write returns the status after a controller has written its parents, and whether it did write.
func (r routeTest) write(t *testing.T, controller string, ours ...v1.RouteParentStatus) ([]v1.RouteParentStatus, bool) {
	t.Helper()
	get := func() *v1.HTTPRoute {
		route, err := r.client.GatewayV1().HTTPRoutes("a").Get(t.Context(), "r", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return route
	}
	route, before := get(), len(r.client.Actions())
	if err := r.WriteGateways(t.Context(), gateway.Report{Routes: []gateway.RouteStatus{{Object: route,
		Kind: "HTTPRoute", Controller: v1.GatewayController(controller), Parents: ours}}}); err != nil {
		t.Fatal(err)
	}
	wrote := len(r.client.Actions()) > before
	return get().Status.Parents, wrote
}

func parentOf(controller, name string, conditions ...metav1.Condition) v1.RouteParentStatus {
	return v1.RouteParentStatus{ParentRef: v1.ParentReference{Name: v1.ObjectName(name)},
		ControllerName: v1.GatewayController(controller),
		Conditions:     append(accept(metav1.ConditionTrue), conditions...)}
}

// TestPartiallyInvalid: a route that stays partially invalid is not written, and the condition goes when it is valid.
func TestPartiallyInvalid(t *testing.T) {
	const ours = model.DefaultClass
	partial := metav1.Condition{Type: string(v1.RouteConditionPartiallyInvalid), Status: metav1.ConditionTrue,
		Reason: "UnsupportedValue", Message: "rules[1]", ObservedGeneration: 1}
	since := metav1.Unix(1000, 0)
	before := partial
	before.LastTransitionTime = since
	r := newRouteTest(t, parentOf(ours, "gw", before))
	got, wrote := r.write(t, ours, parentOf(ours, "gw", partial))
	if c := apimeta.FindStatusCondition(got[0].Conditions, partial.Type); wrote || c == nil ||
		!c.LastTransitionTime.Equal(&since) {
		t.Errorf("it was written again: %v, condition %+v", wrote, c)
	}
	got, _ = r.write(t, ours, parentOf(ours, "gw"))
	if c := apimeta.FindStatusCondition(got[0].Conditions, partial.Type); c != nil || len(got[0].Conditions) != 1 {
		t.Errorf("the conditions of a valid route are %+v", got[0].Conditions)
	}
}

// TestRouteOfTwoClasses: two controllers that write one route's status leave the order of its parents as it is.
func TestRouteOfTwoClasses(t *testing.T) {
	const one, two = model.DefaultClass, "jeoul.io/internal"
	r := newRouteTest(t)
	r.write(t, one, parentOf(one, "public"))
	r.write(t, two, parentOf(two, "inside"))
	for _, ours := range []v1.RouteParentStatus{parentOf(one, "public"), parentOf(two, "inside")} {
		if got, wrote := r.write(t, string(ours.ControllerName), ours); wrote {
			t.Errorf("%s has written again: %+v", ours.ControllerName, got)
		}
	}
	got, _ := r.write(t, one, parentOf(one, "new"), parentOf(one, "public"))
	names := ""
	for _, parent := range got {
		names += string(parent.ParentRef.Name) + " "
	}
	if names != "public inside new " {
		t.Errorf("with another parent: %s", names)
	}
	if got, _ = r.write(t, one); len(got) != 1 || got[0].ParentRef.Name != "inside" {
		t.Errorf("without a parent of ours: %+v", got)
	}
}

// TestWriteGateway: conditions of others stay, and those of a later generation; the time of the last change stays
// where nothing changed. The manager is that of the class, and managers that the object has are not written.
func TestWriteGateway(t *testing.T) {
	before := metav1.Unix(1000, 0)
	g := &v1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "gw", Generation: 1}}
	g.Status.Conditions = []metav1.Condition{{Type: "example.com/Foreign", Status: metav1.ConditionTrue,
		Reason: "Theirs"},
		{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Because", LastTransitionTime: before},
		{Type: "Programmed", Status: metav1.ConditionTrue, Reason: "Newer", ObservedGeneration: 2}}
	client := fake.NewSimpleClientset() // NewClientset knows no plural of Gateway
	if _, err := client.GatewayV1().Gateways("a").Create(t.Context(), g, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: model.FieldManager, Subresource: "status"}}
	client.PrependReactor("update", "gateways", func(a clienttesting.Action) (bool, runtime.Object, error) {
		update := a.(clienttesting.UpdateActionImpl)
		if managers := update.Object.(*v1.Gateway).ManagedFields; managers != nil ||
			update.UpdateOptions.FieldManager != model.ManagerOf("jeoul.io/internal") {
			t.Errorf("%q writes the managers %v", update.UpdateOptions.FieldManager, managers)
		}
		return false, nil, nil
	})
	w := &Writer{Gateways: client, Recorder: &discardRecorder{}, Class: "jeoul.io/internal"}
	made := v1.GatewayStatus{Conditions: append(accept(metav1.ConditionTrue),
		metav1.Condition{Type: "Programmed", Status: metav1.ConditionFalse, Reason: "Older", ObservedGeneration: 1})}
	if err := w.WriteGateways(t.Context(),
		gateway.Report{Gateways: []gateway.GatewayStatus{{Object: g, Status: made}}}); err != nil {
		t.Fatal(err)
	}
	now, err := client.GatewayV1().Gateways("a").Get(t.Context(), "gw", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	accepted := apimeta.FindStatusCondition(now.Status.Conditions, "Accepted")
	if accepted == nil || accepted.ObservedGeneration != 1 || !accepted.LastTransitionTime.Equal(&before) {
		t.Errorf("Accepted is %+v", accepted)
	}
	if c := apimeta.FindStatusCondition(now.Status.Conditions, "Programmed"); c == nil || c.Reason != "Newer" {
		t.Errorf("Programmed is %+v", c)
	}
	if apimeta.FindStatusCondition(now.Status.Conditions, "example.com/Foreign") == nil {
		t.Error("another's condition is gone")
	}
}
