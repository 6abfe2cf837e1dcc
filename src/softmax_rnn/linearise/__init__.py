"""From a trained softmax model to any other attention, in stages that each show what they gained."""
